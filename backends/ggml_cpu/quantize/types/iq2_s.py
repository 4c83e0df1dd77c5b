"""Quantizer of iq2_s (ggml-quants.c:quantize_row_iq2_s_impl).

d f16 | indices u8 [32] | signs u8 [32] | upper bits of indices u8 [8] | scales u8 [8].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.gridded import (
    SIGNS,
    build_group,
    of_largest,
    point_index,
    put_scales,
    round_step,
)
from ggml_cpu.quantize.lanes import W, X, load_lanes, mul, put, put_byte, sum_of_squares, weigh
from ggml_cpu.quantize.points import fitter, load_codes
from ggml_cpu.quantize.tables import find_tables

group = build_group(16, 1e-8, False, of_largest(5.0), fitter(16, 8, 3, 9, 0.1, True, False))


@fn
def put_all(m):
    for pair in range(8):
        upper = v.i32x16(0)
        for half in range(2):
            g = 2 * pair + half
            zero = group(m, g)
            for p in range(2):
                index = point_index(m, p, zero)
                put_byte(m, 2 + 2 * g + p, index)
                put_byte(m, 34 + 2 * g + p, load_codes(m + SIGNS, p))
                upper = upper | ((index >> 8) << (4 * half + 2 * p))
        put_byte(m, 66 + pair, upper)
    factor = put_scales(m, 0, 16, 0.9875)
    for g in range(8):
        put_byte(m, 74 + g, round_step(m, 2 * g, factor) | (round_step(m, 2 * g + 1, factor) << 4))


@fn
def compute_sigma2(m):
    return (sum_of_squares(m + X, 256) * 2.0) / 256.0


@fn
def encode_plain(m):
    base = compute_sigma2(m) * 0.25
    for i in range(256):
        put(m + W, i, base + mul(load_lanes(m + X, i), load_lanes(m + X, i)))
    put_all(m)


@fn
def encode_weighted(m):
    weigh(m + X, m + W, 256, compute_sigma2(m))
    put_all(m)


register("iq2_s", encode_plain, encode_weighted, tables=find_tables("iq2_s", 1))
