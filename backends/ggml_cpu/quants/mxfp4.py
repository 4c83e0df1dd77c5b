"""mxfp4: four-bit floats with a power of two as scale, 17 bytes (ggml-common.h:block_mxfp4).

The scale is a byte e (E8M0), 2^(e - 127); half of it goes with the doubled levels.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.levels import DOUBLED_FP4
from ggml_cpu.quants.nonlinear import weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

OFFSET = 16


@fn
def half_power(e):
    """2^(e - 128), by its bits; e < 2 is a denormal (ggml-impl.h:ggml_e8m0_to_fp32_half)."""
    return v.as_f32(v.select(e < 2, (e + 1) << 21, (e - 1) << 23))


@fn
def copy_scale(src, dst):
    v.st_u8(dst, v.ld_u8(src))


@fn
def scale_of(block):
    return v.lane(half_power(v.i32x4(v.ld_u8(block))), 0)


@fn
def scales_of(panel):
    return half_power(v.zext_i32(v.quarter(v.i8_load(panel), 0)))


register(weight(BY_NAME["mxfp4"], DOUBLED_FP4, OFFSET, copy_scale, scale_of, scales_of))
