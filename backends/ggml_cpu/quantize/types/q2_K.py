"""Quantizer of q2_K (ggml-quants.c:quantize_row_q2_K_ref, quantize_row_q2_K_impl).

Scales (low nibbles) and minima (high nibbles) u8 [16] | u8 [64] | d | d_min.
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import MINIMUM_STEPS, STEPS, load_integers, put_byte
from ggml_cpu.quantize.steps import (
    put_factors,
    put_quarters,
    weigh_magnitude,
    with_scales_and_minima,
)
from ggml_cpu.quantize.ways import build_search_pair

searches = with_scales_and_minima(16, 3.0, 15.0, weigh_magnitude, (-0.5, 0.1, 15, True))


@fn
def put_all(m, d, d_min):
    for g in range(16):
        put_byte(m, g, load_integers(m + STEPS, g) | (load_integers(m + MINIMUM_STEPS, g) << 4))
    put_quarters(m, 16)
    put_factors(m, 80, d, d_min)


register("q2_K", *build_search_pair(*searches, 1.0, put_all))
