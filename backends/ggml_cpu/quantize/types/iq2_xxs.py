"""Quantizer of iq2_xxs (ggml-quants.c:quantize_row_iq2_xxs_impl).

d f16 | for each 32 values: indices u8 [4], u32 with four 7-bit sign fields and a scale.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.gridded import SIGNS, build_group, point_index, put_scales, round_step
from ggml_cpu.quantize.lanes import (
    SPARE,
    STEPS,
    VECTOR,
    W,
    X,
    put,
    put_byte,
    put_bytes,
    sum_of_squares,
    weigh,
)
from ggml_cpu.quantize.points import fitter, load_codes
from ggml_cpu.quantize.symmetric import positive_scale
from ggml_cpu.quantize.tables import find_tables

TRIAL = SPARE + 80 * VECTOR


@fn
def start(m, x, w, top, zero):
    scale = positive_scale(x, w, 32, 4.0, m + TRIAL)
    top = scale * 3.0
    return zero | (top <= 0.0), top, scale


group = build_group(32, 1e-15, True, start, fitter(32, 8, 3, 6, 0.1, False, False, True))


@fn
def encode_weighted(m):
    weigh(m + X, m + W, 256, sum_of_squares(m + X, 256) / 256.0)
    for g in range(8):
        zero, signs = group(m, g), v.i32x16(0)
        for p in range(4):
            put_byte(m, 2 + 8 * g + p, point_index(m, p, zero))
            signs = signs | (load_codes(m + SIGNS, p) << (7 * p))
        put(m + STEPS, g, signs)
    factor = put_scales(m, 0, 8, 1.0)
    for g in range(8):
        word = load_codes(m + STEPS, g) | (round_step(m, g, factor) << 28)
        put_bytes(m, 6 + 8 * g, 4, word)


register("iq2_xxs", None, encode_weighted, tables=find_tables("iq2_xxs", 2))
