"""Quantizer of mxfp4 (ggml-quants.c:quantize_row_mxfp4_ref): exponent u8 | u8 [16]."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.levels import nearest_fp4
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    LANES,
    LEVELS,
    STEPS,
    X,
    load_integers,
    load_lanes,
    max_magnitude,
    put,
    put_byte,
)
from ggml_cpu.quantize.steps import put_nibbles


@fn
def exponents(m, top):
    """Return exponents from log2f like ggml; it rounds values just below a power of two up."""
    put(m + STEPS, 0, top)
    for lane in range(LANES):
        x = v.ld_f32(m + STEPS + 4 * lane)
        v.st_f32(m + STEPS + 4 * lane, v.floorf(v.log2f(x)) if x > 0.0 else v.float32(0.0))
    return load_integers(m + STEPS, 0) + (127 - 2)


@fn
def encode_plain(m):
    top = max_magnitude(m + X, 32)
    exponent = v.select(top > 0.0, v.vmax(exponents(m, top), v.i32x16(0)), v.i32x16(0))
    put_byte(m, 0, exponent)
    # Half of 2^(e - 127), because levels are doubled; subnormal for e < 2.
    bits = v.select(exponent < 2, v.i32x16(0x00200000), (exponent - 1) << 23)
    bits = v.select(exponent == 1, v.i32x16(0x00400000), bits)
    for i in range(32):
        put(m + LEVELS, i, v.to_f32(nearest_fp4(load_lanes(m + X, i), v.as_f32(bits))))
    put_nibbles(m, 1, 16, m + LEVELS)


register("mxfp4", encode_plain)
