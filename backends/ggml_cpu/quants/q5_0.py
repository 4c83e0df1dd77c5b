"""q5_0: 32 values of 5 bits, offset by 16, with one scale, 22 bytes (ggml-common.h:block_q5_0).

Block: scale f16 | fifth bits u32, bit i for value i | u8 [16], low nibbles are values 0..15
Panel block: scales f16 [LANES], fifth bits by word [LANES] | words [4][LANES]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.block32 import with_offset
from ggml_cpu.blocks.fifth_bits import five_bits, in_panels, store_five_bits
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import scale_first
from ggml_cpu.blocks.rounding import offset_levels
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

FIFTH = 0, 2  # offsets in a panel block and in a block
load_pairs, load_values = five_bits(*FIFTH)


@fn
def decode(block, x):
    values = v.to_i32(load_values(block) - 16)
    v.store(x, v.to_f32(values) * v.ld_f16(block))


@fn
def encode(x, block):
    q, r = offset_levels(x, 16, block)
    store_five_bits(block + 2, q, r)


panel = in_panels(scale_first(22, 2), *FIFTH)
register(with_offset("q5_0", 16, ACTIVATIONS, panel, load_pairs, load_values, decode, encode))
