"""Uneven levels of ik_llama.cpp's types, and the bit fields that their blocks share.

Each type has its levels twice, the second time shifted by a constant; groups of 16 or 32 values
choose. Values fill signed bytes (`wide` in unpacked.py).
"""

from __future__ import annotations

import numpy as np

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.levels import UNEVEN, pack_levels
from ggml_cpu.kernel import Function, fn

IQ2 = (-31, -13, 1, 17)
IQ3 = (-63, -40, -23, -10, 1, 13, 28, 47)
IQ5 = (
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6,
    -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121,
)  # fmt: skip
IQ6 = (
    -127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
    -51, -47, -44, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5,
    -2, 0, 3, 6, 9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40, 44,
    47, 51, 55, 59, 63, 68, 72, 77, 82, 87, 92, 98, 103, 109, 115, 121,
)  # fmt: skip
LEVELS = {2: (IQ2, 5), 3: (IQ3, 4), 4: (UNEVEN, 4), 5: (IQ5, 2), 6: (IQ6, 1)}

NIBBLES = np.arange(0, 16, 4, dtype=np.int32).tobytes()
PAIRS = np.arange(0, 8, 2, dtype=np.int32).tobytes()
EACH_BIT = (1 << np.arange(8, dtype=np.int32)).tobytes()
FACTORS = np.array(UNEVEN, np.float32).tobytes()


def _tables(levels: tuple[int, ...]) -> list[bytes]:
    """Return the levels as tables of 16 for lookup16."""
    padded = (*levels, *(0,) * (-len(levels) % 16))
    return [pack_levels(padded[i : i + 16]) for i in range(0, len(padded), 16)]


def build_lookup(bits: int) -> Function:
    """Return lookup(index, mask): levels of i8x64 indices; set bits of the mask shift them."""
    levels, shift = LEVELS[bits]
    first, second, third, fourth = (_tables(levels) * 4)[:4]

    @fn
    def one_table(index):
        return v.lookup16(v.i8x16_load(v.table(first)), index)

    @fn
    def two_tables(index):
        low = v.lookup16(v.i8x16_load(v.table(first)), index & 15)
        high = v.lookup16(v.i8x16_load(v.table(second)), index & 15)
        return v.select((index & 16) != 0, high, low)

    @fn
    def four_tables(index):
        low = v.lookup16(v.i8x16_load(v.table(third)), index & 15)
        high = v.lookup16(v.i8x16_load(v.table(fourth)), index & 15)
        upper = v.select((index & 16) != 0, high, low)
        return v.select((index & 32) != 0, upper, two_tables(index))

    find = four_tables if bits == 6 else two_tables if bits == 5 else one_table

    @fn
    def lookup(index, mask):
        levels = find(index)
        return v.select(v.mask64(mask), levels + shift, levels)

    return lookup


@fn
def each_16(bits):
    """Return a mask of 64 bits: four bits, each repeated 16 times."""
    apart = (bits & 1) | (bits & 2) << 15 | (bits & 4) << 30 | (bits & 8) << 45
    return apart * 0xFFFF


@fn
def each_32(bits):
    """Return a mask of 64 bits: two bits, each repeated 32 times."""
    return ((bits & 1) | (bits & 2) << 31) * 0xFFFFFFFF


@fn
def two_fields(at, shift, bits):
    """Return i8x64 of 32 bytes: `bits` bits of each byte from `shift` on, then the next bits."""
    packed = v.i32x8_load(at)
    mask = ((1 << bits) - 1) * 0x01010101
    return v.concat(v.as_i8((packed >> shift) & mask), v.as_i8((packed >> (shift + bits)) & mask))


@fn
def load_halves(at):
    """Return the 64 nibbles of 32 bytes: low, then high nibbles of each half."""
    packed = v.i8x32_load(at)
    both = v.as_i64(v.concat(packed & 15, (packed >> 4) & 15))
    return v.as_i8(v.shuffle(both, 0, 1, 4, 5, 2, 3, 6, 7))


@fn
def four_nibbles(word):
    """Return the nibbles of a 16-bit number as i32x4, lowest first."""
    return (v.i32x4(word) >> v.i32x4_load(v.table(NIBBLES))) & 15


@fn
def four_pairs(byte):
    """Return the pairs of bits of a byte as i32x4, lowest first."""
    return (v.i32x4(byte) >> v.i32x4_load(v.table(PAIRS))) & 3


@fn
def mask_of_4(bits):
    return (v.i32x4(bits) & v.i32x4_load(v.table(EACH_BIT))) != 0


@fn
def mask_of_8(bits):
    return (v.i32x8(bits) & v.i32x8_load(v.table(EACH_BIT))) != 0


@fn
def two(first, second):
    return v.set_lane(v.i32x2(first), 1, second)


@fn
def codes_by_four(at, j):
    """Return the codes of groups 2j and 2j + 1: byte g % 4 has group g, and g + 4 above it."""
    pair = v.ld_u16(at + 2 * (j % 2)) >> (4 * (j // 2))
    return two(pair & 15, (pair >> 8) & 15)


@fn
def uneven_factors(codes):
    """Return the levels of two codes as f32x2."""
    factors = v.table(FACTORS)
    first = v.ld_f32(factors + 4 * v.lane(codes, 0))
    return v.set_lane(v.f32x2(first), 1, v.ld_f32(factors + 4 * v.lane(codes, 1)))
