"""iq3_ks: 3-bit indices of uneven levels, 104 bytes (ik_llama.cpp's block_iq3_ks).

d f16 | fifth bits of the codes u8 | shifts of 8 groups u8 | codes u8 [4], nibbles of groups g and
g + 4 | lower two bits u8 [2][32] | third bits u8 [32]. A value is d * (code - 16) * level.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, codes_by_four, each_32, two, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

UPPER, SHIFTS, CODES, VALUES, THIRD = 2, 3, 4, 8, 72
lookup = build_lookup(3)


@fn
def load_bytes(block, j):
    low = two_fields(block + VALUES + 32 * (j // 2), 4 * (j % 2), 2)
    index = low | two_fields(block + THIRD, 2 * j, 1) << 2
    return lookup(index, each_32(v.ld_u8(block + SHIFTS) >> (2 * j)))


@fn
def load_scales(block, j):
    high = v.ld_u8(block + UPPER) >> (2 * j)
    codes = codes_by_four(block + CODES, j) | two((high & 1) << 4, (high & 2) << 3)
    return v.to_f32(codes - 16) * v.ld_f16(block)


register(weight("iq3_ks", CHUNKS, 32, load_bytes, load_scales, wide=True))
