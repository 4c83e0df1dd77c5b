"""Quantizer of nvfp4 (ggml-quants.c:quantize_row_nvfp4_ref): scales u8 [4] | nibbles [4][8]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.levels import nearest_fp4
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, VECTOR, X, load_lanes, max_magnitude, put, put_byte
from ggml_cpu.quantize.steps import put_nibbles

LARGEST, SATURATED = 0x7E, 0x78  # codes from SATURATED on become LARGEST


@fn
def to_e4m3(x):
    """Round x >= 0 to unsigned E4M3, halves up (ggml-impl.h:ggml_fp32_to_ue4m3)."""
    bits = v.as_i32(v.vmin(x, 448.0))
    exponent = (bits >> 23) - 120
    code = exponent * 8 + (((bits & 0x7FFFFF) + (1 << 19)) >> 20)
    code = v.select(code >= SATURATED, v.i32x16(LARGEST), code)
    small = v.vmin(v.to_i32(v.vtrunc(v.vmin(x, 1.0) * 512.0 + 0.5)), v.i32x16(7))
    return v.select(x > 0.0, v.select(exponent <= 0, small, code), v.i32x16(0))


@fn
def half_value(code):
    """Return half the value of an E4M3 code, because the levels are doubled."""
    exponent, mantissa = code >> 3, v.to_f32(code & 7)
    normal = (mantissa * 0.125 + 1.0) * v.as_f32((exponent + 119) << 23)
    return v.select(exponent == 0, mantissa * 2.0**-10, normal)


@fn
def encode_plain(m):
    for g in range(4):
        x = m + X + 16 * VECTOR * g
        code = to_e4m3(max_magnitude(x, 16) / 6.0)
        put_byte(m, g, code)
        scale = half_value(code)
        for i in range(16):
            put(x + LEVELS, i, v.to_f32(nearest_fp4(load_lanes(x, i), scale)))
        put_nibbles(m, 4 + 8 * g, 8, x + LEVELS)


register("nvfp4", encode_plain)
