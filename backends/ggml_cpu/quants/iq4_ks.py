"""iq4_ks: 4-bit indices of uneven levels, 140 bytes (ik_llama.cpp's block_iq4_ks).

d f32 | scales u8 [8] | u8 [8][16], low nibbles of a group are its first values. A value is
d * ((scale & 254) - 127) * level; bit 0 of a scale shifts the levels.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup, each_32, load_halves, two
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.q8_K import CHUNKS

SCALES, VALUES = 4, 12
lookup = build_lookup(4)


@fn
def even_scales(first, second):
    """Return (scale & 254) - 127 of two scales as f32x2."""
    return v.to_f32((two(first, second) & 254) - 127)


@fn
def spread_shifts(both):
    """Return the mask of the shifts of two scales, the bytes of a 16-bit number."""
    return each_32((both & 1) | (both >> 7 & 2))


@fn
def load_shifts(block, j):
    return spread_shifts(v.ld_u16(block + SCALES + 2 * j))


@fn
def load_bytes(block, j):
    return lookup(load_halves(block + VALUES + 32 * j), load_shifts(block, j))


@fn
def load_scales(block, j):
    both = v.ld_u16(block + SCALES + 2 * j)
    return even_scales(both & 255, both >> 8) * v.ld_f32(block)


register(weight("iq4_ks", CHUNKS, 32, load_bytes, load_scales, wide=True))
