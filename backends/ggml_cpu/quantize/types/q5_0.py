"""Quantizer of q5_0 (ggml-quants.c:quantize_row_q5_0_ref, quantize_row_q5_0_impl).

d | fifth bits u8 [4] | u8 [16].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS
from ggml_cpu.quantize.simple import around_zero, put_fifth_bits
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_levels(m):
    put_fifth_bits(m, 2)
    put_nibbles(m, 6, 16, m + LEVELS)


encode_plain, encode_weighted = around_zero(16, put_levels)
register("q5_0", encode_plain, encode_weighted, by_row=True)
