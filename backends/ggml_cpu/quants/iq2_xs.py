"""iq2_xs: 512-entry codebook with signs, 74 bytes (ggml-common.h:block_iq2_xs).

d f16 | u16 [32], one per 8 values: 9-bit grid index, seven signs above it | scales of 16 values,
nibbles u8 [8]. A value is d / 8 * (2 * scale + 1) * grid value, with its sign.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import build_load_bytes, four_odd_scales, signs_of_sevens
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid


@fn
def number(block, j, i):
    return v.ld_u16(block + 2 + 16 * j + 2 * i) & 511


@fn
def load_signs(block, j):
    sevens = v.to_i8(v.i16x8_load(block + 2 + 16 * j) >> 9)
    return signs_of_sevens(v.lane(v.as_i64(sevens), 0))


load_bytes = build_load_bytes(grid("iq2_xs"), number)


@fn
def load_scales(block, j):
    return four_odd_scales(v.ld_f16(block) * v.float32(0.125), v.ld_u16(block + 66 + 2 * j))


register(weight("iq2_xs", CHUNKS, 16, load_bytes, load_scales, load_signs))
