"""iq4_kss: 4-bit indices of uneven levels, and scales among them, 132 bytes (block_iq4_kss).

d f32 | u16 [8][8]. The indices of a word are u ^ u >> 1, u being the word without bit 0; bits 0 of
the words of a group are its scale.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.format import register
from ggml_cpu.blocks.ik_levels import build_lookup
from ggml_cpu.blocks.unpacked import weight
from ggml_cpu.kernel import fn
from ggml_cpu.quants.iq4_ks import even_scales, spread_shifts
from ggml_cpu.quants.q8_K import CHUNKS

VALUES = 4
lookup = build_lookup(4)


@fn
def both_scales(words):
    """Return the scales of two groups as a 16-bit number."""
    return v.vbits((words & 1) != 0)


@fn
def load_bytes(block, j):
    words = v.i16x16_load(block + VALUES + 32 * j)
    even = words & -2
    packed = v.as_i8(even ^ (even >> 1))
    nibbles = v.as_i64(v.concat(packed & 15, (packed >> 4) & 15))
    index = v.as_i8(v.shuffle(nibbles, 0, 1, 4, 5, 2, 3, 6, 7))
    return lookup(index, spread_shifts(both_scales(words)))


@fn
def load_scales(block, j):
    both = both_scales(v.i16x16_load(block + VALUES + 32 * j))
    return even_scales(both & 255, both >> 8 & 255) * v.ld_f32(block)


register(weight("iq4_kss", CHUNKS, 32, load_bytes, load_scales, wide=True))
