"""Quantizer of q5_K (ggml-quants.c:quantize_row_q5_K_ref, quantize_row_q5_K_impl).

d | d_min | scales and minima u8 [12] | fifth bits u8 [32] | u8 [128].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, VECTOR, load_integers, put_byte
from ggml_cpu.quantize.steps import (
    put_factors,
    put_nibbles,
    put_six_bits,
    weigh_magnitude_and_mean,
    with_scales_and_minima,
)
from ggml_cpu.quantize.ways import build_search_pair

searches = with_scales_and_minima(8, 31.0, 63.0, weigh_magnitude_and_mean, (-0.5, 0.1, 15, False))


@fn
def put_all(m, d, d_min):
    put_factors(m, 0, d, d_min)
    put_six_bits(m, 4)
    for i in range(32):
        bits = v.i32x16(0)
        for j in range(8):
            bits = bits | ((load_integers(m + LEVELS, 32 * j + i) >> 4) << j)
        put_byte(m, 16 + i, bits)
    for i in range(4):
        put_nibbles(m, 48 + 32 * i, 32, m + LEVELS + 64 * VECTOR * i)


register("q5_K", *build_search_pair(*searches, 2.0, put_all))
