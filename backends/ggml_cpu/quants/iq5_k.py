"""iq5_k: 5-bit indices of uneven levels, 176 bytes (ik_llama.cpp's block_iq5_k).

d f16 | shifts u16 | upper two bits of codes u8 [4] | lower four bits u8 [8] | lower four bits of
indices u8 [4][32], low nibbles of a row are its first 32 values | fifth bits u8 [32]. A value is
d * (code - 32) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_16, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.iq4_k import SHIFTS, VALUES, load_scales
from ggml_cpu.quants.q8_K import CHUNKS

FIFTH = 144
lookup = build_lookup(5)


@fn
def load_bytes(block, j):
    index = two_fields(block + VALUES + 32 * j, 0, 4) | two_fields(block + FIFTH, 2 * j, 1) << 4
    return lookup(index, each_16(v.ld_u16(block + SHIFTS) >> (4 * j)))


register(weight("iq5_k", CHUNKS, 16, load_bytes, load_scales, wide=True))
