"""iq3_s: 512-entry codebook with signs, 110 bytes (ggml-common.h:block_iq3_s).

d f16 | low bytes of grid indices, one per four values, u8 [64] | ninth bits of the indices u8 [8] |
signs u8 [32] | scales of 32 values, nibbles u8 [4]. A value is d * (2 * scale + 1) * grid value,
with its sign.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.codebook import build_load_bytes, build_load_signs, half_word, odd_scales
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS
from ggml_py.grids import grid

NINTH, SIGNS, SCALES = 66, 74, 106


@fn
def number(block, j, i):
    ninth = v.select(v.mask16(v.ld_u16(block + NINTH + 2 * j)), v.i16x16(256), 0)
    return half_word(v.zext_i16(v.i8x16_load(block + 2 + 16 * j)) | ninth, i)


load_bytes = build_load_bytes(grid("iq3_s"), number)


@fn
def load_scales(block, j):
    scales = v.ld_u8(block + SCALES + j)
    return odd_scales(v.ld_f16(block), scales & 15, scales >> 4)


register(weight("iq3_s", CHUNKS, 32, load_bytes, load_scales, build_load_signs(SIGNS)))
