"""Quantizer of iq3_xxs (ggml-quants.c:quantize_row_iq3_xxs_impl).

d f16 | indices u8 [64] | u32 [8], four 7-bit sign fields and a scale.
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
from ggml_cpu.quantize.lanes import STEPS, put, put_byte, put_bytes
from ggml_cpu.quantize.points import fitter, load_codes
from ggml_cpu.quantize.tables import find_tables
from ggml_cpu.quantize.ways import build_square_pair

group = build_group(32, 1e-8, True, of_largest(15.0), fitter(32, 4, 8, 15, 0.2, True, False))


@fn
def put_all(m):
    for g in range(8):
        zero, signs = group(m, g), v.i32x16(0)
        for p in range(8):
            put_byte(m, 2 + 8 * g + p, point_index(m, p, zero))
        for p in range(4):
            signs = signs | (load_codes(m + SIGNS, p) << (7 * p))
        put(m + STEPS, g, signs)
    factor = put_scales(m, 0, 8, 1.0125)
    for g in range(8):
        put_bytes(m, 66 + 4 * g, 4, load_codes(m + STEPS, g) | (round_step(m, g, factor) << 28))


register("iq3_xxs", *build_square_pair(256, 2.0, put_all), tables=find_tables("iq3_xxs", 2))
