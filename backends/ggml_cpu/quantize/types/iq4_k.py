"""Quantizer of iq4_k (iqk_quantize.cpp:quantize_row_iq4_k_impl_bs16 of ik_llama.cpp).

d f16 | shifts u16 | upper bits of codes u8 [4] | lower bits u8 [8] | u8 [128].
"""

from __future__ import annotations

from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, VECTOR
from ggml_cpu.quantize.shifted import (
    build_search,
    put_codes,
    put_shift_bits,
    quantize_blocks,
    signed_steps,
    weigh_groups,
)
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_block(m):
    put_shift_bits(m, 2, 16)
    put_codes(m, 4, 8)
    for g in range(8):
        put_nibbles(m, 16 + 16 * g, 16, m + LEVELS + 32 * VECTOR * g)


CHOICES = build_search(4, 16, 7, False), weigh_groups(16, 2.0, 0.0), signed_steps(32)
register("iq4_k", *quantize_blocks(*CHOICES, put_block, 144))
