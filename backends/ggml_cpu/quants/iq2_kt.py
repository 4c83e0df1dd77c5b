"""iq2_kt: 16-bit indices of 8 values, 72 bytes (ik_llama.cpp's block_iq2_kt).

d f32 | codes u8 [4], nibbles of groups g and g + 4 | u16 [32]. A value is d * level[code] * the
generator's number.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import codes_by_four, uneven_factors
from ggml_cpu.blocks.trellis import eight_values
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

CODES, VALUES = 4, 8


@fn
def load_bytes(block, j):
    return eight_values(v.zext_i32(v.i16x8_load(block + VALUES + 16 * j)))


@fn
def load_scales(block, j):
    return uneven_factors(codes_by_four(block + CODES, j)) * v.ld_f32(block)


register(weight("iq2_kt", CHUNKS, 32, load_bytes, load_scales, wide=True))
