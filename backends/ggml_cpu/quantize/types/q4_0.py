"""Quantizer of q4_0 (ggml-quants.c:quantize_row_q4_0_ref, quantize_row_q4_0_impl): d | u8 [16]."""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS
from ggml_cpu.quantize.simple import around_zero
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_levels(m):
    put_nibbles(m, 2, 16, m + LEVELS)


encode_plain, encode_weighted = around_zero(8, put_levels)
register("q4_0", encode_plain, encode_weighted, by_row=True)
