"""mxfp4: 17 bytes: exponent of the scale | four-bit floats in nibbles as in q4_0."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.fp4 import LEVELS
from ggml_cpu.blocks.uneven import store_levels
from ggml_cpu.kernel import fn

BYTES = 17


@fn
def half_power(e):
    """2^(e - 128), by its bits; e < 2 is a denormal (ggml-impl.h:ggml_e8m0_to_fp32_half)."""
    if e < 2:
        return v.f32_of_bits(0x00200000 << e)
    return v.f32_of_bits((e - 1) << 23)


@fn
def dequantize(src, n, dst):
    for _ in range(n // 32):
        store_levels(src + 1, v.table(LEVELS), half_power(v.ld_u8(src)), dst)
        src += BYTES
        dst += 128


register("mxfp4", dequantize=dequantize)
