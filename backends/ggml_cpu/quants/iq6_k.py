"""iq6_k: 6-bit indices of uneven levels, 212 bytes (ik_llama.cpp's block_iq6_k).

d f16 | shifts of 16 groups u16 | scales i8 [16] | lower four bits u8 [4][32], low nibbles of a row
are its first 32 values | upper two bits u8 [2][32]. A value is d * scale * level. Levels are cubics
of the index; products use them rounded.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks import walk
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_16, two_fields
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.types import BY_NAME

SHIFTS, SCALES, VALUES, UPPER = 2, 4, 20, 148
CUBIC = -127.0, 6.2568, -0.11218, 0.0011972
lookup = build_lookup(6)


@fn
def load_index(block, j):
    upper = two_fields(block + UPPER + 32 * (j // 2), 4 * (j % 2), 2)
    return two_fields(block + VALUES + 32 * j, 0, 4) | upper << 4


@fn
def load_bytes(block, j):
    return lookup(load_index(block, j), each_16(v.ld_u16(block + SHIFTS) >> (4 * j)))


@fn
def load_scales(block, j):
    return v.to_f32(v.to_i32(v.i8x4_load(block + SCALES + 4 * j))) * v.ld_f16(block)


@fn
def decode(block, x):
    for j in range(4):
        q = v.to_f32(v.to_i32(load_index(block, j)))
        level = v.fma(q, v.fma(q, v.fma(q, CUBIC[3], CUBIC[2]), CUBIC[1]), CUBIC[0])
        shifted = v.mask64(each_16(v.ld_u16(block + SHIFTS) >> (4 * j)))
        level = v.select(shifted, level + 1.0, level)
        v.store(x + 256 * j, level * v.repeat_each(load_scales(block, j), 16))


found = weight("iq6_k", CHUNKS, 16, load_bytes, load_scales, wide=True)
register(replace(found, dequantize=walk.dequantize(BY_NAME["iq6_k"], decode)))
