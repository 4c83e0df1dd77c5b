"""iq3_k: 3-bit indices of uneven levels, 110 bytes (ik_llama.cpp's block_iq3_k).

d f16 | shifts of 16 groups u16 | signs of the scales u16 | codes, nibbles u8 [8] | lower two bits
u8 [2][32] | third bits u8 [32]. A value is +-d * (2 * code + 1) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import four_odd_scales
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_16, mask_of_4, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SHIFTS, SIGNS, CODES, VALUES, THIRD = 2, 4, 6, 14, 78
lookup = build_lookup(3)


@fn
def load_bytes(block, j):
    low = two_fields(block + VALUES + 32 * (j // 2), 4 * (j % 2), 2)
    index = low | two_fields(block + THIRD, 2 * j, 1) << 2
    return lookup(index, each_16(v.ld_u16(block + SHIFTS) >> (4 * j)))


@fn
def load_scales(block, j):
    scales = four_odd_scales(v.ld_f16(block), v.ld_u16(block + CODES + 2 * j))
    signs = mask_of_4((v.ld_u16(block + SIGNS) >> (4 * j)) & 15)
    return v.select(signs, -scales, scales)


register(weight("iq3_k", CHUNKS, 16, load_bytes, load_scales, wide=True))
