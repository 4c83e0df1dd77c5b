"""iq4_nl: 32 indices of nonlinear levels with one scale, 18 bytes (ggml-common.h:block_iq4_nl).

d f16 | u8 [16], low nibbles are values 0..15, high nibbles 16..31
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.block32 import first_f16, first_f16s
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.levels import UNEVEN, nearest_uneven, uneven_levels
from ggml_cpu.blocks.nonlinear import weight
from ggml_cpu.blocks.rounding import TINY, extreme, inverse, store_nibbles
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS
from ggml_cpu.target import I8_BIAS

FIRST = float(UNEVEN[0])


@fn
def fit_scale(x, y, q, r):
    """Return the least-squares scale of 32 values x, y with level indices q, r, weights x^2."""
    a, b = uneven_levels(q), uneven_levels(r)
    xq = v.vsum(x * x * a * x + y * y * b * y)
    qq = v.vsum(x * x * a * a + y * y * b * b)
    return v.float32(xq * inverse(qq))


@fn
def encode(src, block):
    x, y = v.f32x16_load(src), v.f32x16_load(src + 64)
    top = extreme(src, x, y)
    if abs(top) < TINY:
        v.st_f16(block, v.float32(0.0))
        store_nibbles(block + 2, v.i32x16(0), v.i32x16(0))
    else:
        factor = v.float32(1.0) / v.float32(top / v.float32(FIRST))
        q, r = nearest_uneven(x * factor), nearest_uneven(y * factor)
        v.st_f16(block, fit_scale(x, y, q, r))
        store_nibbles(block + 2, q, r)


register(weight("iq4_nl", UNEVEN, I8_BIAS, ACTIVATIONS, first_f16, first_f16s, encode))
