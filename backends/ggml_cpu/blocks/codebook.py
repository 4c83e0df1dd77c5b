"""Common code of the codebook (IQ) types: grid lookup, signs and odd scales."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn

NIBBLES = np.arange(0, 16, 4, dtype=np.int32).tobytes()


def build_load_bytes(points: npt.NDArray[np.int8], number: Function) -> Function:
    """Return load_bytes(block, j): a chunk of grid points of 8 or 4 values.

    number(block, j, i) returns the index of point i in the grid.
    """
    table = points.tobytes()

    @fn
    def load_eights(block, j):
        x = v.i64x8(0)
        for i in range(8):
            x = v.set_lane(x, i, v.ld_i64(v.table(table) + 8 * number(block, j, i)))
        return v.as_i8(x)

    @fn
    def load_fours(block, j):
        x = v.i32x16(0)
        for i in range(16):
            x = v.set_lane(x, i, v.ld_i32(v.table(table) + 4 * number(block, j, i)))
        return v.as_i8(x)

    return load_eights if points.shape[1] == 8 else load_fours


def build_load_signs(at: int) -> Function:
    """Return load_signs(block, j) for types that store signs as 8 bytes per chunk, from `at` on."""

    @fn
    def load_signs(block, j):
        return v.ld_i64(block + at + 8 * j)

    return load_signs


# Offset of the bytes of iq1 codebooks. Points are shifted by +1/8 or -1/8, so a byte is
# 8 * (value +- 1/8) + SHIFTED. All points shifted up precede all points shifted down.
SHIFTED = 9


def shift_points(points: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    return np.concatenate([points * 8 + SHIFTED + 1, points * 8 + SHIFTED - 1])


@fn
def half_word(words, i):
    """Return 16-bit element i of a vector; extracting its 64-bit lane and shifting is cheapest."""
    return (v.lane(v.as_i64(words), i // 4) >> (16 * (i % 4))) & 0xFFFF


@fn
def signs_of_sevens(sevens):
    """Return 64 sign bits from eight bytes of seven bits; bit 7 makes each byte's parity even."""
    x = sevens ^ (sevens >> 4)
    x ^= x >> 2
    x ^= x >> 1
    return sevens | (x & 0x0101010101010101) << 7


@fn
def signs_of_words(words):
    """Return 64 sign bits from two 32-bit words with four 7-bit fields in their low 28 bits."""
    pairs = (words & 0x00003FFF00003FFF) | (words & 0x0FFFC0000FFFC000) << 2
    return signs_of_sevens((pairs & 0x007F007F007F007F) | (pairs & 0x3F803F803F803F80) << 1)


@fn
def odd_scales(d, first, second):
    """Return d * (2 * first + 1) and d * (2 * second + 1) as f32x2."""
    steps = v.set_lane(v.i32x2(first), 1, second)
    return v.to_f32((steps << 1) + 1) * d


@fn
def four_odd_scales(d, nibbles):
    """Return d * (2 * s + 1) as f32x4 for the four nibbles s of a 16-bit number, lowest first."""
    steps = (v.i32x4(nibbles) >> v.i32x4_load(v.table(NIBBLES))) & 15
    return v.to_f32((steps << 1) + 1) * d
