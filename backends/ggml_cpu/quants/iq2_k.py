"""iq2_k: 2-bit indices of uneven levels, 76 bytes (ik_llama.cpp's block_iq2_k).

d f16 | shifts of 16 groups u16 | codes, nibbles u8 [8] | u8 [2][32], four values per byte.
A value is d * (code - 8) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_16, four_nibbles, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SHIFTS, CODES, VALUES = 2, 4, 12
lookup = build_lookup(2)


@fn
def load_bytes(block, j):
    index = two_fields(block + VALUES + 32 * (j // 2), 4 * (j % 2), 2)
    return lookup(index, each_16(v.ld_u16(block + SHIFTS) >> (4 * j)))


@fn
def load_scales(block, j):
    return v.to_f32(four_nibbles(v.ld_u16(block + CODES + 2 * j)) - 8) * v.ld_f16(block)


register(weight("iq2_k", CHUNKS, 16, load_bytes, load_scales, wide=True))
