"""q1_0: 18 bytes: scale f16, the mean of the magnitudes | 128 bits, 1 for positive."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import BITS
from ggml_cpu.kernel import fn

BYTES = 18


@fn
def quantize(src, n, dst):
    for _ in range(n // 128):
        total = v.float32(0.0)
        for i in range(128):  # in this order, which decides how the sum is rounded
            total = v.float32(total + abs(v.ld_f32(src + 4 * i)))
        v.st_f16(dst, v.float32(total / v.float32(128.0)))
        bits = v.i32x16_load(v.table(BITS))
        for g in range(8):
            positive = v.f32x16_load(src + 64 * g) >= 0.0
            v.st_u16(dst + 2 + 2 * g, v.vsum(v.select(positive, bits, 0)))
        src += 512
        dst += BYTES


register("q1_0", quantize=quantize)
