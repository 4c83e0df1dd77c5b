"""Quantizer of q4_K (ggml-quants.c:quantize_row_q4_K_ref, quantize_row_q4_K_impl).

d | d_min | scales and minima u8 [12] | u8 [128].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, VECTOR
from ggml_cpu.quantize.steps import (
    put_factors,
    put_nibbles,
    put_six_bits,
    weigh_magnitude_and_mean,
    with_scales_and_minima,
)
from ggml_cpu.quantize.ways import build_search_pair

searches = with_scales_and_minima(8, 15.0, 63.0, weigh_magnitude_and_mean, (-1.0, 0.1, 20, False))


@fn
def put_all(m, d, d_min):
    put_factors(m, 0, d, d_min)
    put_six_bits(m, 4)
    for i in range(4):
        put_nibbles(m, 16 + 32 * i, 32, m + LEVELS + 64 * VECTOR * i)


register("q4_K", *build_search_pair(*searches, 2.0, put_all))
