"""q2_K: 2-bit values in the groups of sub16.py (ggml-common.h:block_q2_K).

Block, 84 bytes: scales in low nibbles and minima in high nibbles u8 [16] | values u8 [64] | d f16 |
dmin f16. A panel keeps the word order of blocks.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import word_by_word
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.search import levels_above, scales_and_minima, with_minimum
from ggml_cpu.blocks.sub16 import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import ACTIVATIONS

VALUES, D = 16, 80  # offsets in a block
FOUR_BITS, TWO_BITS = 0x0F0F0F0F, 0x03030303


@fn
def load_word(w, half, j, i):
    return (v.i32_load(w + WORD * (4 + 8 * half + i)) >> (2 * j)) & TWO_BITS


@fn
def scale_words(w, i):
    words = v.i32_load(w + WORD * i)
    return words & FOUR_BITS, (words >> 4) & FOUR_BITS


@fn
def factors(d, w):
    both = v.i32_load(w + WORD * 20)
    return v.f16_to_f32(v.to_i16(both)), v.f16_to_f32(v.to_i16(both >> 16))


@fn
def load_values(block, j):
    return (v.i8x64_load(block + VALUES) >> (2 * j)) & 3


@fn
def load_scales(block):
    both = v.i8x16_load(block)
    return both & 15, (both >> 4) & 15


@fn
def load_factors(block):
    return v.ld_f16(block + D), v.ld_f16(block + D + 2)


@fn
def find_scale_and_minimum(x):
    return with_minimum(x, 16, v.float32(0.0), 3.0, -0.5, 0.1, 15, True)


@fn
def store_group(block, g, scale, minimum):
    v.st_i8(block + g, scale | minimum << 4)


store_scales = scales_and_minima(find_scale_and_minimum, 16, 15.0, D, store_group)


@fn
def encode(x, block):
    store_scales(x, block)
    d, d_min = load_factors(block)
    for half in range(2):
        for part in range(2):
            packed = v.i32x16(0)
            for j in range(4):
                g = 8 * half + 2 * j + part
                both, values = v.ld_u8(block + g), v.f32x16_load(x + 64 * g)
                scale = d * v.float32(both & 15)
                q = levels_above(values, scale, d_min * v.float32(both >> 4), 3.0)
                packed = packed | (q << (2 * j))
            v.store(block + VALUES + 32 * half + 16 * part, v.to_i8(packed))


register(
    weight(
        "q2_K",
        3,
        ACTIVATIONS,
        word_by_word(84),
        load_word,
        scale_words,
        factors,
        load_values,
        load_scales,
        load_factors,
        encode,
    )
)
