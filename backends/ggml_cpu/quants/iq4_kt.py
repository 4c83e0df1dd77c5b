"""iq4_kt: 16-bit indices of 4 values, 132 bytes (ik_llama.cpp's block_iq4_kt).

d f32 | u32 [8]: bit 15 of the indices, code (7 bits), bits 12 to 14 of 8 indices | lower
bytes u8 [64] | bits 8 to 11 u8 [32], of indices i and i + 32. A value is d * (code - 64) * the
generator's number.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import two
from ggml_cpu.blocks.trellis import four_values
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

WORDS, LOW, HIGH = 4, 36, 100
PLACES = np.tile(np.arange(8, 32, 3, dtype=np.int32), 2).tobytes()


@fn
def load_bytes(block, j):
    low = v.zext_i32(v.i8x16_load(block + LOW + 16 * j))
    high = (v.zext_i32(v.i8x16_load(block + HIGH + 16 * (j % 2))) >> (4 * (j // 2))) & 15
    words = v.repeat_each(v.i32x2_load(block + WORDS + 8 * j), 8)
    top = (words >> v.i32x16_load(v.table(PLACES))) & 7
    values, _ = four_values(low | high << 8 | top << 12 | (words & 1) << 15)
    return v.as_i8(values)


@fn
def load_scales(block, j):
    first, second = v.ld_u8(block + WORDS + 8 * j), v.ld_u8(block + WORDS + 8 * j + 4)
    return v.to_f32(two(first >> 1, second >> 1) - 64) * v.ld_f32(block)


register(weight("iq4_kt", CHUNKS, 32, load_bytes, load_scales, wide=True))
