"""q5_1: 32 values of 5 bits with a scale and a minimum, 24 bytes (ggml-common.h:block_q5_1).

Block: scale f16 | minimum f16 | fifth bits u32, bit i for value i | u8 [16], low nibbles are values
0..15
Panel block: the words of the block in order, [6][LANES], with fifth bits by word
"""

from __future__ import annotations

from ggml_cpu.blocks.block32 import with_minimum
from ggml_cpu.blocks.fifth_bits import five_bits, in_panels, store_five_bits
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import word_by_word
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import levels_from_lowest
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

FIFTH = WORD, 4  # offsets in a panel block and in a block
load_pairs, load_values = five_bits(*FIFTH)


@fn
def encode(x, block):
    q, r = levels_from_lowest(x, 31, block)
    store_five_bits(block + 4, q, r)


panel = in_panels(word_by_word(24), *FIFTH)
register(with_minimum("q5_1", 31, ACTIVATIONS, panel, load_pairs, load_values, encode))
