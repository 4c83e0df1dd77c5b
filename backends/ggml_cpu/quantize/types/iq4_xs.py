"""Quantizer of iq4_xs (ggml-quants.c:quantize_row_iq4_nl_impl).

d f16 | upper bits of scales u16 | lower bits of scales u8 [4] | u8 [128].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import (
    LEVELS,
    SCALES,
    STEPS,
    VECTOR,
    W,
    X,
    divide,
    extreme,
    load_integers,
    load_lanes,
    mul,
    put,
    put_byte,
    put_bytes,
    put_half,
    round_and_clip,
)
from ggml_cpu.quantize.steps import put_nibbles
from ggml_cpu.quantize.uneven import find_scale, put_levels
from ggml_cpu.quantize.ways import build_square_pair


@fn
def put_all(m):
    for g in range(8):
        x = m + X + 32 * VECTOR * g
        put(m + SCALES, g, find_scale(x, x + W, 32))
    d = -extreme(m + SCALES, 8) / 32.0
    put_half(m, 0, d)
    factor, upper = divide(v.f32x16(1.0), d), v.i32x16(0)
    for g in range(8):
        x, step = (
            m + X + 32 * VECTOR * g,
            round_and_clip(mul(factor, load_lanes(m + SCALES, g)), -32.0, 31.0),
        )
        put_levels(x, x + LEVELS, 32, mul(d, step))
        put(m + STEPS, g, step + 32.0)
        upper = upper | ((load_integers(m + STEPS, g) >> 4) << (2 * g))
        put_nibbles(m, 8 + 16 * g, 16, x + LEVELS)
    put_bytes(m, 2, 2, upper)
    for g in range(4):
        low, high = load_integers(m + STEPS, 2 * g) & 15, load_integers(m + STEPS, 2 * g + 1) & 15
        put_byte(m, 4 + g, low | (high << 4))


register("iq4_xs", *build_square_pair(256, 2.0, put_all))
