"""nvfp4: 36 bytes: scales u8 [4] (unsigned e4m3) | four-bit floats in nibbles [4][8]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import DOUBLED_FP4, table_of

BYTES = 36
LEVELS = table_of(DOUBLED_FP4)


@fn
def half_e4m3(e):
    """Half of an unsigned e4m3 number; 0x7f is 0 (ggml-impl.h:ggml_ue4m3_to_fp32)."""
    exponent, mantissa = (e >> 3) & 15, v.float32(e & 7)
    if e == 0x7F:
        return v.float32(0.0)
    if exponent == 0:
        return mantissa * v.float32(2.0**-10)
    power = v.f32_of_bits((exponent + 119) << 23)
    return v.float32((v.float32(1.0) + mantissa * v.float32(0.125)) * power)


@fn
def dequantize(src, n, dst):
    for _ in range(n // 64):
        for g in range(4):
            packed = v.i8x16_load_n(src + 4 + 8 * g, 8)
            both = v.low(packed & 15), v.low((packed >> 4) & 15)
            found = v.lookup16(v.i8x16_load(v.table(LEVELS)), v.concat(both[0], both[1]))
            v.store(dst, v.to_f32(v.to_i32(found)) * half_e4m3(v.ld_u8(src + g)))
            dst += 64
        src += BYTES


register("nvfp4", dequantize=dequantize)
