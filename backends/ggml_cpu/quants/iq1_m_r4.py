"""iq1_m_r4: iq1 points with a delta each, 58 bytes (rows of ik_llama.cpp's block_iq1_m_r4).

d f16 | lower bytes of the indices u8 [32] | u8 [16], nibbles: bits 8 to 10 and the delta's sign |
codes of 16 values, nibbles u8 [8]. A value is d * code * (point +- 1/8).
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import SHIFTED, build_load_bytes, half_word, shift_points
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import four_nibbles
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

LOW, HIGH, CODES = 2, 34, 50


@fn
def number(block, j, i):
    pairs = v.zext_i32(v.i8x4_load(block + HIGH + 4 * j))
    tops = v.as_i16((pairs | pairs << 12) & 0x000F000F)
    return half_word(v.zext_i16(v.i8x8_load(block + LOW + 8 * j)) | tops << 8, i)


load_bytes = build_load_bytes(shift_points(grid("iq1")), number)


@fn
def load_scales(block, j):
    codes = four_nibbles(v.ld_u16(block + CODES + 2 * j))
    return v.to_f32(codes) * (v.ld_f16(block) * v.float32(0.125))


register(weight("iq1_m_r4", CHUNKS, 16, load_bytes, load_scales, offset=SHIFTED))
