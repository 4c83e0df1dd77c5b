"""Quantizer of iq6_k (iqk_quantize.cpp:quantize_row_iq6_k_impl of ik_llama.cpp).

d f16 | shifts u16 | scales i8 [16] | u8 [128] | upper bits u8 [64].
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quantize.format import register
from ggml_cpu.quantize.lanes import LEVELS, STEPS, VECTOR, load_integers, put_byte
from ggml_cpu.quantize.shifted import (
    build_search,
    put_shift_bits,
    quantize_blocks,
    signed_steps,
    weigh_groups,
)
from ggml_cpu.quantize.steps import put_nibbles


@fn
def put_block(m):
    put_shift_bits(m, 2, 16)
    for g in range(16):
        put_byte(m, 4 + g, load_integers(m + STEPS, g) & 255)
    for k in range(4):
        put_nibbles(m, 20 + 32 * k, 32, m + LEVELS + 64 * VECTOR * k)
    for half in range(2):
        for i in range(32):
            bits = v.i32x16(0)
            for k in range(4):
                index = load_integers(m + LEVELS, 128 * half + 32 * k + i)
                bits = bits | ((index >> 4) << (2 * k))
            put_byte(m, 148 + 32 * half + i, bits)


CHOICES = build_search(6, 16, 5, True), weigh_groups(16, 2.0, 0.25), signed_steps(127)
register("iq6_k", *quantize_blocks(*CHOICES, put_block, 212))
