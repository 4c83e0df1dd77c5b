"""iq4_k: 4-bit indices of uneven levels, 144 bytes (ik_llama.cpp's block_iq4_k).

d f16 | shifts of 16 groups u16 | upper two bits of the codes u8 [4] | lower four bits u8 [8] |
u8 [8][16], low nibbles of a group of 32 are its first values. A value is d * (code - 32) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_16, four_nibbles, four_pairs, load_halves
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SHIFTS, UPPER, LOWER, VALUES = 2, 4, 8, 16
lookup = build_lookup(4)


@fn
def load_bytes(block, j):
    mask = each_16(v.ld_u16(block + SHIFTS) >> (4 * j))
    return lookup(load_halves(block + VALUES + 32 * j), mask)


@fn
def load_scales(block, j):
    """Return d * (code - 32) of four groups."""
    low = four_nibbles(v.ld_u16(block + LOWER + 2 * j))
    codes = low | four_pairs(v.ld_u8(block + UPPER + j)) << 4
    return v.to_f32(codes - 32) * v.ld_f16(block)


register(weight("iq4_k", CHUNKS, 16, load_bytes, load_scales, wide=True))
