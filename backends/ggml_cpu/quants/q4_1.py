"""q4_1: 32 values of 4 bits with a scale and a minimum, 20 bytes (ggml-common.h:block_q4_1).

Block: scale f16 | minimum f16 | u8 [16], low nibbles are values 0..15, high nibbles 16..31
Panel block: the words of the block in order, [5][LANES]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.block32 import four_bits, with_minimum
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import word_by_word
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import levels_from_lowest, store_nibbles
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

load_pairs, load_values = four_bits(WORD, 4)


@fn
def encode(x, block):
    q, r = levels_from_lowest(x, 15, block)
    store_nibbles(block + 4, v.vmin(q, v.i32x16(15)), v.vmin(r, v.i32x16(15)))


register(with_minimum("q4_1", 15, ACTIVATIONS, word_by_word(20), load_pairs, load_values, encode))
