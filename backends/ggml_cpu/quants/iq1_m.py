"""iq1_m: 2048-entry codebook with shifted points, 56 bytes (ggml-common.h:block_iq1_m).

Low bytes of grid indices u8 [32] | nibbles [32]: top three bits of an index and, as bit 3, a
downward shift | u16 [4], one per 64 values: four 3-bit scales of 16 values and four bits of d, an
f16. A value is d * (2 * scale + 1) * (grid value + 1/8 or - 1/8); see codebook.py.
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import SHIFTED, build_load_bytes, half_word, shift_points
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

TOPS, SCALES = 32, 48
FIELDS = np.arange(0, 12, 3, dtype=np.int32).tobytes()


@fn
def number(block, j, i):
    pairs = v.zext_i32(v.i8x4_load(block + TOPS + 4 * j))
    tops = v.as_i16((pairs | pairs << 12) & 0x000F000F)
    return half_word(v.zext_i16(v.i8x8_load(block + 8 * j)) | tops << 8, i)


load_bytes = build_load_bytes(shift_points(grid("iq1")), number)


@fn
def load_d(block):
    """Return d, an f16 in the top nibbles of the four words of scales."""
    words = block + SCALES
    low = v.ld_u16(words) >> 12 | (v.ld_u16(words + 2) >> 12) << 4
    bits = low | (v.ld_u16(words + 4) >> 12) << 8 | (v.ld_u16(words + 6) >> 12) << 12
    return v.lane(v.f16_to_f32(v.i16x4(bits)), 0)


@fn
def load_scales(block, j):
    word = v.i32x4(v.ld_u16(block + SCALES + 2 * j))
    steps = (word >> v.i32x4_load(v.table(FIELDS))) & 7
    return v.to_f32((steps << 1) + 1) * (load_d(block) * v.float32(0.125))


register(weight("iq1_m", CHUNKS, 16, load_bytes, load_scales, offset=SHIFTED))
