"""iq1_kt: 13-bit indices of 8 values, 60 bytes (ik_llama.cpp's block_iq1_kt).

d f32 | u8 [8], low nibbles: codes, upper ones: bits 12 of four indices | lower bytes u8 [32] | bits
8 to 11 u8 [16], of indices i and i + 16. A value is d * level[code] * the generator's number.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import mask_of_8, two, uneven_factors
from ggml_cpu.blocks.trellis import eight_values
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

CODES, LOW, HIGH = 4, 12, 44


@fn
def load_bytes(block, j):
    low = v.zext_i32(v.i8x8_load(block + LOW + 8 * j))
    high = (v.zext_i32(v.i8x8_load(block + HIGH + 8 * (j % 2))) >> (4 * (j // 2))) & 15
    both = v.ld_u16(block + CODES + 2 * j)
    top = v.select(mask_of_8((both >> 4 & 15) | (both >> 8 & 240)), v.i32x8(4096), 0)
    return eight_values(low | high << 8 | top)


@fn
def load_scales(block, j):
    both = v.ld_u16(block + CODES + 2 * j)
    return uneven_factors(two(both & 15, both >> 8 & 15)) * v.ld_f32(block)


register(weight("iq1_kt", CHUNKS, 32, load_bytes, load_scales, wide=True))
