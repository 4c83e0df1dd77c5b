"""iq5_ks: 5-bit indices of uneven levels, 172 bytes (ik_llama.cpp's block_iq5_ks).

d f32 | scales u8 [8], bit 0: shift | lower four bits u8 [4][32], low nibbles of a row are its first
32 values | fifth bits u8 [32]
"""

from __future__ import annotations

from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.iq4_ks import VALUES, load_scales, load_shifts
from ggml_cpu.quants.q8_K import CHUNKS

FIFTH = 140
lookup = build_lookup(5)


@fn
def load_bytes(block, j):
    index = two_fields(block + VALUES + 32 * j, 0, 4) | two_fields(block + FIFTH, 2 * j, 1) << 4
    return lookup(index, load_shifts(block, j))


register(weight("iq5_ks", CHUNKS, 32, load_bytes, load_scales, wide=True))
