"""q1_0: 18 bytes: scale f16 | 128 bits, 1 for positive."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.rounding import BITS
from ggml_cpu.kernel import fn

BYTES = 18


@fn
def dequantize(src, n, dst):
    for _ in range(n // 128):
        scale, bits = v.f32x16(v.ld_f16(src)), v.i32x16_load(v.table(BITS))
        for g in range(8):
            set_bits = bits & v.i32x16(v.ld_u16(src + 2 + 2 * g))
            v.store(dst, v.select(set_bits != 0, scale, v.f32x16(0.0) - scale))
            dst += 64
        src += BYTES


register("q1_0", dequantize=dequantize)
