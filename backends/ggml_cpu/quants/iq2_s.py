"""iq2_s: 1024-entry codebook with signs, 82 bytes (ggml-common.h:block_iq2_s).

d f16 | low bytes of grid indices u8 [32] | signs u8 [32] | top two bits of the indices, four per
byte, u8 [8] | scales of 16 values, nibbles u8 [8]. A value is d / 8 * (2 * scale + 1) * grid value,
with its sign.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import build_load_bytes, build_load_signs, four_odd_scales, half_word
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

SIGNS, TOPS, SCALES = 34, 66, 74
FACTORS = np.array([256, 64, 16, 4] * 2, np.int16).tobytes()  # shift the top bits to bits 8 and 9


@fn
def number(block, j, i):
    tops = v.shuffle(v.zext_i16(v.i8x2_load(block + TOPS + 2 * j)), 0, 0, 0, 0, 1, 1, 1, 1)
    aligned = tops * v.i16x8_load(v.table(FACTORS)) & 0x0300
    return half_word(v.zext_i16(v.i8x8_load(block + 2 + 8 * j)) | aligned, i)


load_bytes = build_load_bytes(grid("iq2_s"), number)


@fn
def load_scales(block, j):
    return four_odd_scales(v.ld_f16(block) * v.float32(0.125), v.ld_u16(block + SCALES + 2 * j))


register(weight("iq2_s", CHUNKS, 16, load_bytes, load_scales, build_load_signs(SIGNS)))
