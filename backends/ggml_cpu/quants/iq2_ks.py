"""iq2_ks: 2-bit indices of uneven levels, 72 bytes (ik_llama.cpp's block_iq2_ks).

d f16 | shifts of 8 groups u8 | fifth bits of codes u8 | codes, nibbles u8 [4] | u8 [2][32], four
values of 2 bits per byte. A value is d * (code - 16) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_32, two, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SHIFTS, UPPER, CODES, VALUES = 2, 3, 4, 8
lookup = build_lookup(2)


@fn
def load_bytes(block, j):
    index = two_fields(block + VALUES + 32 * (j // 2), 4 * (j % 2), 2)
    return lookup(index, each_32(v.ld_u8(block + SHIFTS) >> (2 * j)))


@fn
def load_scales(block, j):
    low, high = v.ld_u8(block + CODES + j), v.ld_u8(block + UPPER) >> (2 * j)
    codes = two((low & 15) | (high & 1) << 4, low >> 4 | (high & 2) << 3)
    return v.to_f32(codes - 16) * v.ld_f16(block)


register(weight("iq2_ks", CHUNKS, 32, load_bytes, load_scales, wide=True))
