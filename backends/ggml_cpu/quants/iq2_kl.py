"""iq2_kl: 5-bit indices of pairs of values, 88 bytes (ik_llama.cpp's block_iq2_kl).

d f16 | upper two bits of the codes u16 | lower four bits u8 [4], groups g and g + 4 | lower four
bits of the indices u8 [4][16], low nibbles of a row are its first group | fifth bits u8 [16]. A
value is d * (code - 32) * the value of a pair.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import codes_by_four, two
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

UPPER, LOWER, VALUES, FIFTH = 2, 4, 8, 72
PAIRS = """c1e9 c10d d8c1 d8f6 d80d d82f e9d8 e9e9 e901 e90d e91c f6c1 f601 f60d f62f 01e9
01f6 0101 010d 011c 0dd8 0de9 0df6 0d01 0d0d 1cc1 1ce9 1c01 1c1c 1c2f 2fe9 2f0d"""
BYTES = np.frombuffer(bytes.fromhex("".join(PAIRS.split())), np.int8).reshape(2, 16, 2)
FIRST, UPPER_FIRST = BYTES[0, :, 0].tobytes(), BYTES[1, :, 0].tobytes()
SECOND, UPPER_SECOND = BYTES[0, :, 1].tobytes(), BYTES[1, :, 1].tobytes()


@fn
def load_bytes(block, j):
    packed, bits = v.i8x16_load(block + VALUES + 16 * j), v.i32x4_load(block + FIFTH)
    low = v.concat(packed & 15, (packed >> 4) & 15)
    pair = v.concat((bits >> (2 * j)) & 0x01010101, (bits >> (2 * j + 1)) & 0x01010101)
    upper = v.as_i8(pair) != 0
    first = v.lookup16(v.i8x16_load(v.table(FIRST)), low)
    second = v.lookup16(v.i8x16_load(v.table(SECOND)), low)
    first = v.select(upper, v.lookup16(v.i8x16_load(v.table(UPPER_FIRST)), low), first)
    second = v.select(upper, v.lookup16(v.i8x16_load(v.table(UPPER_SECOND)), low), second)
    return v.concat(v.zip_low(first, second), v.zip_high(first, second))


@fn
def load_scales(block, j):
    high = v.ld_u16(block + UPPER) >> (4 * j)
    codes = codes_by_four(block + LOWER, j) | two((high & 3) << 4, (high & 12) << 2)
    return v.to_f32(codes - 32) * v.ld_f16(block)


register(weight("iq2_kl", CHUNKS, 32, load_bytes, load_scales, wide=True))
