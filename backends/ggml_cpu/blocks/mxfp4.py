"""mxfp4: 17 bytes: exponent u8 | level numbers in nibbles as in q4_0."""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import largest_of, store_nibbles
from ggml_cpu.kernel import fn

BYTES = 17
LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32).tobytes()


@fn
def nearest_level(x, scale):
    """Index of the level with level * scale next to x; the first of equals."""
    least, index = v.vabs(x), v.i32x16(0)
    for i in range(1, 16):
        error = v.vabs(v.ld_f32(v.table(LEVELS) + 4 * i) * scale - x)
        index = v.select(error < least, v.i32x16(i), index)
        least = v.vmin(least, error)
    return index


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        top = largest_of(v.vabs(x), v.vabs(y))
        v.st_f32(dst + 1, top)
        exponent = max(1, (v.ld_i32(dst + 1) >> 23) - 2) if top > 0.0 else 0
        v.st_i32(dst + 1, max(0, exponent - 1) << 23)  # 2^(exponent - 128)
        power = v.ld_f32(dst + 1)
        v.st_i8(dst, exponent)
        store_nibbles(dst + 1, nearest_level(x, power), nearest_level(y, power))
        src += 128
        dst += BYTES


register("mxfp4", quantize=quantize)
