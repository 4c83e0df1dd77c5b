"""Quantizer of iq2_xs (ggml-quants.c:quantize_row_iq2_xs_impl).

d f16 | u16 [32], index and seven signs | scales u8 [8].
"""

from __future__ import annotations

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
from ggml_cpu.quantize.lanes import W, X, put_byte, put_bytes, sum_of_squares, weigh
from ggml_cpu.quantize.points import fitter, load_codes
from ggml_cpu.quantize.tables import find_tables

group = build_group(16, 1e-15, True, of_largest(5.0), fitter(16, 8, 3, 9, 0.1, True, False))


@fn
def encode_weighted(m):
    weigh(m + X, m + W, 256, sum_of_squares(m + X, 256) / 256.0)
    for g in range(16):
        zero = group(m, g)
        for p in range(2):
            word = point_index(m, p, zero) | (load_codes(m + SIGNS, p) << 9)
            put_bytes(m, 2 + 4 * g + 2 * p, 2, word)
    factor = put_scales(m, 0, 16, 1.0)
    for g in range(8):
        put_byte(m, 66 + g, round_step(m, 2 * g, factor) | (round_step(m, 2 * g + 1, factor) << 4))


register("iq2_xs", None, encode_weighted, tables=find_tables("iq2_xs", 2))
