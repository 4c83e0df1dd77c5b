"""q8_0: 34 bytes: scale f16 | i8 [32]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import away, inverse, largest_of
from ggml_cpu.kernel import fn

BYTES = 34


@fn
def quantize(src, n, dst):
    for _ in range(n // 32):
        x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
        scale = v.float32(largest_of(v.vabs(x), v.vabs(y)) / v.float32(127.0))
        factor = inverse(scale)
        v.st_f16(dst, scale)
        v.store(dst + 2, away(x * factor))
        v.store(dst + 18, away(y * factor))
        src += 128
        dst += BYTES


register("q8_0", quantize=quantize)
