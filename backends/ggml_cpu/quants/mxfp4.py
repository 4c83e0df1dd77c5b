"""mxfp4: 32 4-bit floats with a power-of-two scale, 17 bytes (ggml-common.h:block_mxfp4).

Exponent u8 | u8 [16], low nibbles are values 0..15, high nibbles 16..31. The scale is 2^(e - 127)
(E8M0). Kernels use half the scale, because the levels are doubled.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.levels import DOUBLED_FP4, nearest_fp4
from ggml_cpu.blocks.nonlinear import weight
from ggml_cpu.blocks.rounding import max_value, store_nibbles
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

OFFSET = 16


@fn
def half_power(e):
    """Return 2^(e - 128), built from its bits (ggml-impl.h:ggml_e8m0_to_fp32_half).

    It is subnormal for e < 2.
    """
    return v.as_f32(v.select(e < 2, (e + 1) << 21, (e - 1) << 23))


@fn
def load_scale(block):
    return v.lane(half_power(v.i32x4(v.ld_u8(block))), 0)


@fn
def load_scales(scales):
    return half_power(v.zext_i32(v.quarter(v.i8_load(scales), 0)))


@fn
def encode(src, block):
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    top = max_value(v.vabs(x), v.vabs(y))
    # ggml's logarithm rounds a value just below a power of two up.
    exponent = max(0, int(v.floorf(v.log2f(top))) + 127 - 2) if top > 0.0 else 0
    v.st_i8(block, exponent)
    power = load_scale(block)
    store_nibbles(block + 1, nearest_fp4(x, power), nearest_fp4(y, power))


register(weight("mxfp4", DOUBLED_FP4, OFFSET, ACTIVATIONS, load_scale, load_scales, encode))
