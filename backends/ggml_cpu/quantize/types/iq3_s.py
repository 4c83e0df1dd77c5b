"""Quantizer of iq3_s (ggml-quants.c:quantize_row_iq3_s_impl).

d f16 | indices u8 [64] | ninth bits of indices u8 [8] | signs u8 [32] | scales u8 [4].
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
from ggml_cpu.quantize.lanes import put_byte
from ggml_cpu.quantize.points import fitter, load_codes
from ggml_cpu.quantize.tables import find_tables
from ggml_cpu.quantize.ways import build_square_pair

group = build_group(32, 0.0, False, of_largest(15.0), fitter(32, 4, 8, 9, 0.2, False, True))


@fn
def put_all(m):
    for g in range(8):
        zero, upper = group(m, g), v.i32x16(0)
        for p in range(8):
            index = point_index(m, p, zero)
            put_byte(m, 2 + 8 * g + p, index)
            upper = upper | ((index >> 8) << p)
        put_byte(m, 66 + g, upper)
        for p in range(4):
            put_byte(m, 74 + 4 * g + p, load_codes(m + SIGNS, p))
    factor = put_scales(m, 0, 8, 1.033)
    for g in range(4):
        put_byte(m, 106 + g, round_step(m, 2 * g, factor) | (round_step(m, 2 * g + 1, factor) << 4))


register("iq3_s", *build_square_pair(256, 2.0, put_all), tables=find_tables("iq3_s", 3))
