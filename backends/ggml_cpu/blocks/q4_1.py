"""q4_1: 20 bytes: scale f16 | minimum f16 | nibbles as in q4_0."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import inverse, largest_of, smallest_of, store_nibbles
from ggml_cpu.kernel import fn

BYTES = 20


@fn
def level(x, low, factor):
    return v.vmin(v.to_i32((x - low) * factor + 0.5), v.i32x16(15))


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        low = smallest_of(x, y)
        scale = v.float32((largest_of(x, y) - low) / v.float32(15.0))
        factor = inverse(scale)
        v.st_f16(dst, scale)
        v.st_f16(dst + 2, low)
        store_nibbles(dst + 4, level(x, low, factor), level(y, low, factor))
        src += 128
        dst += BYTES


register("q4_1", quantize=quantize)
