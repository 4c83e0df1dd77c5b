"""iq3_kt: 16-bit indices of 8 magnitudes, 104 bytes (ik_llama.cpp's block_iq3_kt).

d f32 | codes u8 [4], nibbles of groups g and g + 4 | u16 [32] | signs u8 [32], bit g of byte i for
value i of group g. A value is d * code * the generator's number.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import codes_by_four, two_fields
from ggml_cpu.blocks.trellis import eight_values
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

CODES, VALUES, SIGNS = 4, 8, 72


@fn
def load_bytes(block, j):
    x = eight_values(v.zext_i32(v.i16x8_load(block + VALUES + 16 * j)))
    minus = two_fields(block + SIGNS, 2 * j, 1) != 0
    return v.select(minus, v.select(x < 0, x, -x), v.select(x < 0, -x, x))


@fn
def load_scales(block, j):
    return v.to_f32(codes_by_four(block + CODES, j)) * v.ld_f32(block)


register(weight("iq3_kt", CHUNKS, 32, load_bytes, load_scales, wide=True))
