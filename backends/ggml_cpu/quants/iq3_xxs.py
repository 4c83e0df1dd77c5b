"""iq3_xxs: 256-entry codebook with signs, 98 bytes (ggml-common.h:block_iq3_xxs).

d f16 | grid indices, one per four values, u8 [64] | u32 [8], one per 32 values: four 7-bit sign
fields, each for eight values, and a 4-bit scale above them. A value is d / 4 * (2 * scale + 1) *
grid value, with its sign.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import build_load_bytes, odd_scales, signs_of_words
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

SIGNS = 66


@fn
def number(block, j, i):
    return v.ld_u8(block + 2 + 16 * j + i)


@fn
def load_signs(block, j):
    return signs_of_words(v.ld_i64(block + SIGNS + 8 * j))


load_bytes = build_load_bytes(grid("iq3_xxs"), number)


@fn
def load_scales(block, j):
    words = block + SIGNS + 8 * j
    d = v.ld_f16(block) * v.float32(0.25)
    return odd_scales(d, v.ld_u32(words) >> 28, v.ld_u32(words + 4) >> 28)


register(weight("iq3_xxs", CHUNKS, 32, load_bytes, load_scales, load_signs))
