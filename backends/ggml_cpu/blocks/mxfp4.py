"""mxfp4: 17 bytes: exponent u8 | level numbers in nibbles as in q4_0."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.fp4 import nearest_level
from ggml_cpu.blocks.rounding import largest_of, store_nibbles
from ggml_cpu.kernel import fn

BYTES = 17

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
