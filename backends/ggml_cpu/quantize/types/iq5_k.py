"""Quantizer of iq5_k (iqk_quantize.cpp:quantize_row_iq5_k_impl of ik_llama.cpp).

d f16 | shifts u16 | upper bits of codes u8 [4] | lower bits u8 [8] | u8 [128] | fifth bits u8 [32].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.shifted import (
    build_search,
    put_codes,
    put_fives,
    put_shift_bits,
    quantize_blocks,
    signed_steps,
    weigh_groups,
)


@fn
def put_block(m):
    put_shift_bits(m, 2, 16)
    put_codes(m, 4, 8)
    put_fives(m, 16)


CHOICES = build_search(5, 16, 5, True), weigh_groups(16, 2.0, 0.25), signed_steps(32)
register("iq5_k", *quantize_blocks(*CHOICES, put_block, 176))
