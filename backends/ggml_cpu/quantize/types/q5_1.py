"""Quantizer of q5_1 (ggml-quants.c:quantize_row_q5_1_ref, quantize_row_q5_1_impl).

d | lowest value | fifth bits u8 [4] | u8 [16].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS
from ggml_cpu.quantize.simple import from_lowest, put_fifth_bits
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_levels(m):
    put_fifth_bits(m, 4)
    put_nibbles(m, 8, 16, m + LEVELS)


encode_plain, encode_weighted = from_lowest(31, put_levels)
register("q5_1", encode_plain, encode_weighted, by_row=True)
