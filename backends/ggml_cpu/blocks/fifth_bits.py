"""5-bit values: nibbles and a separate word of 32 fifth bits, bit i for value i.

Panels store the fifth bits by word: bit 8 * c + s belongs to byte c of word s. Words 0..3 are the
low nibbles, words 4..7 the high nibbles. One shift then moves the four bits of a word above their
nibbles.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.panels import WORD
from ggml_cpu.blocks.rounding import BITS, store_nibbles
from ggml_cpu.kernel import Function, fn

LOW_BITS = 0x01010101
SPREAD = 0x00204081  # factor that copies bit c of four bits to bit 8 * c; mask with LOW_BITS
GATHER = 0x01020408  # the inverse: factor that copies bit 8 * c to bit 24 + c
EACH_BIT = 0x8040201008040201 - (1 << 64)  # byte i is 1 << i


@fn
def bits_by_word(bits):
    """Convert a vector of fifth bits from value order to panel order."""
    result = (bits & 15) * SPREAD & LOW_BITS
    for s in range(1, 8):
        result = result | (((bits >> (4 * s)) & 15) * SPREAD & LOW_BITS) << s
    return result


@fn
def bits_by_value(bits):
    """Convert the fifth bits of one panel row back to value order."""
    result = 0
    for s in range(8):
        result |= (((bits >> s) & LOW_BITS) * GATHER >> 24 & 15) << (4 * s)
    return result


def in_panels(
    panel: tuple[Function, Function], panel_at: int, block_at: int
) -> tuple[Function, Function]:
    """Return `panel` (see walk.py:weight) with the fifth bits reordered by word.

    They have offset `panel_at` in a panel block and `block_at` in a block.
    """
    pack, gather = panel

    @fn
    def pack_bits(src, stride, rows, scales, dst):
        pack(src, stride, rows, scales, dst)
        v.store(dst + panel_at, bits_by_word(v.i32_load(dst + panel_at)))

    @fn
    def gather_bits(scales, panel, r, dst):
        gather(scales, panel, r, dst)
        v.st_i32(dst + block_at, bits_by_value(v.ld_u32(dst + block_at)))

    return pack_bits, gather_bits


def five_bits(panel_at: int, block_at: int) -> tuple[Function, Function]:
    """Return load_pairs and load_values like block32.py:four_bits, for 5-bit values.

    The fifth bits have the given offsets; the nibbles follow them.
    """

    @fn
    def load_pairs(w, i):
        packed = v.i8_load(w + panel_at + WORD + i * WORD)
        bits = v.i32_load(w + panel_at)
        low = (packed & 15) | (v.as_i8((bits << 4) >> i) & 16)
        return low, ((packed >> 4) & 15) | (v.as_i8(bits >> i) & 16)

    @fn
    def load_values(block):
        bits = block + block_at
        packed = v.i8x16_load(bits + 4)
        eight_times = v.repeat_each(v.low(v.as_i8(v.i32x2(v.ld_i32(bits)))), 8)
        fifth = v.select(eight_times & v.as_i8(v.i64x4(EACH_BIT)) != 0, v.i8x32(16), 0)
        return v.concat(packed & 15, (packed >> 4) & 15) | fifth

    return load_pairs, load_values


@fn
def store_five_bits(dst, q, r):
    """Store the fifth bits of q and r, then 16 bytes with the low nibbles of q and r."""
    bits = v.i32x16_load(v.table(BITS))
    low = v.vsum(v.select((q & 16) != 0, bits, 0))
    v.st_u16(dst, low)
    v.st_u16(dst + 2, v.vsum(v.select((r & 16) != 0, bits, 0)))
    store_nibbles(dst + 4, q, r)
