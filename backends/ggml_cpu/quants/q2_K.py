"""q2_K: 2-bit values in the groups of sub16.py (ggml-common.h:block_q2_K).

In place, 84 bytes: scales, above them minima, 4 bits each u8 [16] | values u8 [64] | d f16 |
dmin f16. In a panel the block is kept word by word.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn
from ggml_cpu.quants.interleave import word_by_word
from ggml_cpu.quants.sub16 import WORD, weight
from ggml_cpu.quants.weight import register
from ggml_py.types import BY_NAME

Q2_K = BY_NAME["q2_K"]
VALUES, D = 16, 80  # in place
FOUR_BITS, TWO_BITS = 0x0F0F0F0F, 0x03030303


@fn
def word_of(w, half, j, i):
    return (v.i32_load(w + WORD * (4 + 8 * half + i)) >> (2 * j)) & TWO_BITS


@fn
def scale_words(w, i):
    words = v.i32_load(w + WORD * i)
    return words & FOUR_BITS, (words >> 4) & FOUR_BITS


@fn
def factors(w):
    both = v.i32_load(w + WORD * 20)
    return v.f16_to_f32(v.to_i16(both)), v.f16_to_f32(v.to_i16(both >> 16))


@fn
def values_of(block, j):
    return (v.i8x64_load(block + VALUES) >> (2 * j)) & 3


@fn
def scales_of(block):
    both = v.i8x16_load(block)
    return both & 15, (both >> 4) & 15


@fn
def factors_of(block):
    return v.ld_f16(block + D), v.ld_f16(block + D + 2)


register(
    weight(
        Q2_K, *word_by_word(Q2_K), word_of, scale_words, factors, values_of, scales_of, factors_of
    )
)
