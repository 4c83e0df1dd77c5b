"""q6_0: 32 values of 6 bits, offset by 32, with one scale, 26 bytes (ik_llama.cpp's block_q6_0).

Block: scale f16 | u8 [8], nibbles: upper two bits of values i and i + 16 | u8 [16], low
nibbles are values 0..15
Panel block: scales f16 [LANES] | words [6][LANES]
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.block32 import with_offset
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.interleave import scale_first
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import offset_levels, store_nibbles
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_0 import ACTIVATIONS

UPPER, LOWER = 2, 10


@fn
def load_pairs(w, i):
    packed = v.i8_load(w + (2 + i) * WORD)
    upper = v.as_i8(v.i32_load(w + (i % 2) * WORD) >> (4 * (i // 2)))
    low = (packed & 15) | ((upper & 3) << 4)
    return low, ((packed >> 4) & 15) | ((upper & 12) << 2)


@fn
def load_values(block):
    packed, upper = v.i8x16_load(block + LOWER), v.i8x8_load(block + UPPER)
    upper = v.concat(upper & 15, (upper >> 4) & 15)
    low = (packed & 15) | ((upper & 3) << 4)
    return v.concat(low, ((packed >> 4) & 15) | ((upper & 12) << 2))


@fn
def decode(block, x):
    values = v.to_i32(load_values(block) - 32)
    v.store(x, v.to_f32(values) * v.ld_f16(block))


@fn
def encode(x, block):
    q, r = offset_levels(x, 32, block)
    both = v.to_i8((q >> 4) | (r >> 4) << 2)
    v.store(block + UPPER, v.low(both) | v.high(both) << 4)
    store_nibbles(block + LOWER, q, r)


panel = scale_first(26, 2)
register(with_offset("q6_0", 32, ACTIVATIONS, panel, load_pairs, load_values, decode, encode))
