"""iq1_s: 2048-entry codebook with shifted points, 50 bytes (ggml-common.h:block_iq1_s).

d f16 | low bytes of grid indices u8 [32] | u16 [8], one per 32 values: top three bits of four
indices, a 3-bit scale, and the sign of the shift (1: down). A value is d * (2 * scale + 1) * (grid
value + 1/8 or - 1/8); see codebook.py.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import SHIFTED, build_load_bytes, half_word, odd_scales, shift_points
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

TOPS = 34
FACTORS = np.array([512, 64, 8, 1] * 2, np.int16).tobytes()  # shift the top bits to bits 9 to 11


@fn
def number(block, j, i):
    both = v.as_i16(v.i32x2(v.ld_u32(block + TOPS + 4 * j)))
    tops = v.shuffle(both, 0, 0, 0, 0, 1, 1, 1, 1)
    aligned = tops * v.i16x8_load(v.table(FACTORS)) & 0x0E00
    low = v.zext_i16(v.i8x8_load(block + 2 + 8 * j))
    return half_word(low | aligned >> 1 | (tops >> 4) & 0x0800, i)


load_bytes = build_load_bytes(shift_points(grid("iq1")), number)


@fn
def load_scales(block, j):
    tops = block + TOPS + 4 * j
    d = v.ld_f16(block) * v.float32(0.125)
    return odd_scales(d, (v.ld_u16(tops) >> 12) & 7, (v.ld_u16(tops + 2) >> 12) & 7)


register(weight("iq1_s", CHUNKS, 32, load_bytes, load_scales, offset=SHIFTED))
