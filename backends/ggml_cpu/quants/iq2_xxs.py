"""iq2_xxs: 256-entry codebook with signs, 66 bytes (ggml-common.h:block_iq2_xxs).

d f16 | for each 32 values: grid indices u8 [4], u32 with four 7-bit sign fields and, above them, a
4-bit scale. A value is d / 8 * (2 * scale + 1) * grid value, with its sign.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import build_load_bytes, odd_scales, signs_of_words
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid


@fn
def number(block, j, i):
    return v.ld_u8(block + 2 + 16 * j + 8 * (i // 4) + i % 4)


@fn
def load_signs(block, j):
    q = block + 2 + 16 * j
    return signs_of_words(v.ld_u32(q + 4) | v.ld_u32(q + 12) << 32)


load_bytes = build_load_bytes(grid("iq2_xxs"), number)


@fn
def load_scales(block, j):
    words = block + 6 + 16 * j
    d = v.ld_f16(block) * v.float32(0.125)
    return odd_scales(d, v.ld_u32(words) >> 28, v.ld_u32(words + 8) >> 28)


register(weight("iq2_xxs", CHUNKS, 32, load_bytes, load_scales, load_signs))
