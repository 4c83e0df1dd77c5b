"""Common parts of the types with codebooks: looking up points, their signs, and odd scales."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn

NIBBLES = np.arange(0, 16, 4, dtype=np.int32).tobytes()


def points_of(points: npt.NDArray[np.int8], number: Function) -> Function:
    """Return bytes_of(block, j): points of 8 or 4 values, i's number by `number(block, j, i)`."""
    table = points.tobytes()

    @fn
    def of_eight(block, j):
        x = v.i64x8(0)
        for i in range(8):
            x = v.set_lane(x, i, v.ld_i64(v.table(table) + 8 * number(block, j, i)))
        return v.as_i8(x)

    @fn
    def of_four(block, j):
        x = v.i32x16(0)
        for i in range(16):
            x = v.set_lane(x, i, v.ld_i32(v.table(table) + 4 * number(block, j, i)))
        return v.as_i8(x)

    return of_eight if points.shape[1] == 8 else of_four


def signs_at(at: int) -> Function:
    """Return signs_of(block, j) for signs as bits: those of a chunk are 8 bytes from `at` on."""

    @fn
    def signs_of(block, j):
        return v.ld_i64(block + at + 8 * j)

    return signs_of


# Codebooks whose points are shifted by 1/8 up or down: the bytes are eight times that, plus
# SHIFTED; first come the points that are shifted up, then those that are shifted down.
SHIFTED = 9


def shifted(points: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    return np.concatenate([points * 8 + SHIFTED + 1, points * 8 + SHIFTED - 1])


@fn
def half_word(words, i):
    """Half-word i of an i16 vector. Taken from the 64 bits around it: that is the cheapest way."""
    return (v.lane(v.as_i64(words), i // 4) >> (16 * (i % 4))) & 0xFFFF


@fn
def signs_of_sevens(sevens):
    """64 signs: bytes of seven bits, to which the eighth makes the number of ones even."""
    x = sevens ^ (sevens >> 4)
    x ^= x >> 2
    x ^= x >> 1
    return sevens | (x & 0x0101010101010101) << 7


@fn
def signs_of_words(words):
    """64 signs from two 32-bit words with four fields of seven bits at their low ends."""
    pairs = (words & 0x00003FFF00003FFF) | (words & 0x0FFFC0000FFFC000) << 2
    return signs_of_sevens((pairs & 0x007F007F007F007F) | (pairs & 0x3F803F803F803F80) << 1)


@fn
def odd_scales(d, first, second):
    """f32x2: d times the odd numbers 2 * first + 1 and 2 * second + 1."""
    steps = v.set_lane(v.i32x2(first), 1, second)
    return v.to_f32((steps << 1) + 1) * d


@fn
def four_odd_scales(d, nibbles):
    """f32x4: d times 2 * s + 1 for the four nibbles of a 16-bit number, lowest first."""
    steps = (v.i32x4(nibbles) >> v.i32x4_load(v.table(NIBBLES))) & 15
    return v.to_f32((steps << 1) + 1) * d
