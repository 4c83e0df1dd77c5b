"""Quantizer of q4_1 (ggml-quants.c:quantize_row_q4_1_ref, quantize_row_q4_1_impl).

d | lowest value | u8 [16].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS
from ggml_cpu.quantize.simple import from_lowest
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_levels(m):
    put_nibbles(m, 4, 16, m + LEVELS)


encode_plain, encode_weighted = from_lowest(15, put_levels)
register("q4_1", encode_plain, encode_weighted, by_row=True)
