"""Byte dot products of weights and a tile of columns, in the best variant for this CPU.

A weight word is four bytes along k for each of LANES rows; activations.py defines the layout of the
same four bytes of `width` columns. The accumulators are `size` i32 vectors, in one of these forms:
words    (most CPUs) vector t has the i32 sums of column t
pairs    (x86 without VNNI) vector t has i16 sums, if the number of products cannot overflow them
matrix   (Arm with i8mm) two words at a time; a vector has two columns and two rows
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import AVX512, NEON_DOT, NEON_MATRIX, PAIRS, VNNI, X86

ANY = 128  # largest magnitude of a signed byte; unsigned bytes are at most 127
I16 = 32767
REGISTERS = 32 if AVX512 else 16  # x86 vector registers
HALF = 4  # distance in words from low-nibble values to high-nibble values


class Dots(NamedTuple):
    """Functions (`@fn`) that accumulate dot products in vectors `dots`.

    `sums` are i32 vectors, one per column.

    size      number of vectors in `dots`; they start at zero
    run       maximum number of words to accumulate
    begin     begin(dots, sums): start from these sums; use it with `put_dots` only
    one       one(dots, i, values, a, n): add word i of a run. n is its number in the block, a the
              address of the block's columns. Words must be in order, starting at an even one
    two       two(dots, i, low, high, a, n): add words n and n + HALF
    put_dots  put_dots(sums, dots): convert `dots` to sums; the result includes the sums of `begin`
    add_dots  add_dots(sums, dots, scale): sums[t] += scale * dots, scales must fit i16
    words     True if vector t of `dots` has the sums of column t, so that it may start nonzero
    """

    size: int
    run: int
    begin: Function
    one: Function
    two: Function
    put_dots: Function
    add_dots: Function
    words: bool = False


@fn
def unsigned_dot(total, x, y):
    return v.dot4(total, x, y)


@fn
def biased_dot(total, x, y):
    return v.dot4_biased(total, x, y)


def both_fit(width: int) -> bool:
    """Return True if it pays to accumulate two groups at once, loading each weight word once.

    Loads are the bottleneck. The accumulators of both groups and the block's sums must fit the
    registers. A single column is memory-bound and needs evenly spread prefetches instead.
    """
    return VNNI and width > 1 and 3 * width + 8 <= REGISTERS


@cache
def choose_dots(width: int, words: int, largest: int, dot4: Function = unsigned_dot) -> Dots:
    """Return Dots for tiles of `width` columns and groups of `words` words.

    Bytes are unsigned and at most `largest`; with `biased_dot` they may be any (ANY).
    """
    fits = I16 // (2 * 127 * largest)  # words that i16 sums can accumulate
    if PAIRS and fits > 1 and (words <= fits or words % fits == 0):
        return _pairs(width, min(words, fits))
    if NEON_MATRIX and width > 1:
        return _matrix(width, words)
    small = X86 and 4 * words * 127 * largest <= I16
    return _words(width, words, dot4, small)


def _words(width: int, words: int, dot4: Function, small: bool) -> Dots:
    """Return Dots in the form "words"; small: sums fit i16, so dot2 (PMADDWD) can scale them."""

    @fn
    def begin(dots, sums):
        for t in range(width):
            dots[t] = sums[t]

    @fn
    def one(dots, i, values, a, n):
        at = a + 4 * width * n
        for t in range(width):
            dots[t] = dot4(dots[t], values, v.as_i8(v.i32_bcast(at + 4 * t)))

    @fn
    def one_by_fours(dots, i, values, a, n):
        """Load four columns at once; SDOT selects a column by index."""
        at = a + 4 * width * n
        for t in range(0, width, 4):
            x = v.i32x4_load(at + 4 * t)
            dots[t] = dot4(dots[t], values, v.as_i8(v.shuffle(x, 0, 0, 0, 0)))
            dots[t + 1] = dot4(dots[t + 1], values, v.as_i8(v.shuffle(x, 1, 1, 1, 1)))
            dots[t + 2] = dot4(dots[t + 2], values, v.as_i8(v.shuffle(x, 2, 2, 2, 2)))
            dots[t + 3] = dot4(dots[t + 3], values, v.as_i8(v.shuffle(x, 3, 3, 3, 3)))

    by_fours = NEON_DOT and width % 4 == 0

    @fn
    def two(dots, i, low, high, a, n):
        if by_fours:
            one_by_fours(dots, i, low, a, n)
            one_by_fours(dots, i, high, a, n + HALF)
        else:
            at = a + 4 * width * n
            for t in range(width):
                x = v.as_i8(v.i32_bcast(at + 4 * t))
                y = v.as_i8(v.i32_bcast(at + 4 * (HALF * width + t)))
                dots[t] = dot4(dot4(dots[t], low, x), high, y)

    @fn
    def put_dots(sums, dots):
        for t in range(width):
            sums[t] = dots[t]

    @fn
    def add_dots(sums, dots, scale):
        if small:
            pair = v.as_i16(scale & 0xFFFF)
            for t in range(width):
                sums[t] = v.dot2(sums[t], v.as_i16(dots[t]), pair)
        else:
            for t in range(width):
                sums[t] = sums[t] + dots[t] * scale

    return Dots(
        width, words, begin, one_by_fours if by_fours else one, two, put_dots, add_dots, True
    )


def _pairs(width: int, run: int) -> Dots:
    @fn
    def begin(dots, sums):
        pass

    @fn
    def one(dots, i, values, a, n):
        at = a + 4 * width * n
        for t in range(width):
            x = v.as_i8(v.i32_bcast(at + 4 * t))
            dots[t] = v.as_i32(v.dot_pairs(v.as_i16(dots[t]), values, x))

    @fn
    def two(dots, i, low, high, a, n):
        one(dots, i, low, a, n)
        one(dots, i, high, a, n + HALF)

    @fn
    def put_dots(sums, dots):
        for t in range(width):
            sums[t] = v.dot2(sums[t], v.as_i16(dots[t]), v.i16(1))

    @fn
    def add_dots(sums, dots, scale):
        pair = v.as_i16((scale & 0xFFFF) | (scale << 16))
        for t in range(width):
            sums[t] = v.dot2(sums[t], v.as_i16(dots[t]), pair)

    return Dots(width, run, begin, one, two, put_dots, add_dots)


@fn
def square(x, y):
    """Return the low 64-bit halves of x and y as one i32x4, and their high halves as another."""
    first, second = v.as_i64(x), v.as_i64(y)
    return v.as_i32(v.zip_low(first, second)), v.as_i32(v.zip_high(first, second))


@fn
def add_square(dots, t, columns, low, high):
    """Add the products of columns t and t + 1, eight bytes each, and rows 0, 1 and rows 2, 3."""
    dots[t] = v.matrix_dot(dots[t], columns, low)
    dots[t + 1] = v.matrix_dot(dots[t + 1], columns, high)


def _matrix(width: int, words: int) -> Dots:
    """Return Dots in the form "matrix"; an even word waits in an extra vector for the odd one."""

    @fn
    def cross(to, dots):
        """Convert column sums to 2 x 2 squares; the conversion is its own inverse."""
        for t in range(0, width, 2):
            to[t], to[t + 1] = square(dots[t], dots[t + 1])

    @fn
    def begin(dots, sums):
        cross(dots, sums)

    @fn
    def put_dots(sums, dots):
        cross(sums, dots)

    @fn
    def add(dots, held, i, values, at):
        if i % 2 == 0:
            dots[held] = v.as_i32(values)
        else:
            first, second = dots[held], v.as_i32(values)
            low, high = v.as_i8(v.zip_low(first, second)), v.as_i8(v.zip_high(first, second))
            if width == 2:
                x = v.concat(v.i32x2_load(at - 4 * width), v.i32x2_load(at))
                add_square(dots, 0, v.as_i8(v.shuffle(x, 0, 2, 1, 3)), low, high)
            else:
                for t in range(0, width, 4):
                    x, y = v.i32x4_load(at - 4 * width + 4 * t), v.i32x4_load(at + 4 * t)
                    add_square(dots, t, v.as_i8(v.zip_low(x, y)), low, high)
                    add_square(dots, t + 2, v.as_i8(v.zip_high(x, y)), low, high)

    @fn
    def one(dots, i, values, a, n):
        add(dots, width, i, values, a + 4 * width * n)

    @fn
    def two(dots, i, low, high, a, n):
        add(dots, width, i, low, a + 4 * width * n)
        add(dots, width + 1, i, high, a + 4 * width * (n + HALF))

    @fn
    def add_dots(sums, dots, scale):
        for t in range(0, width, 2):
            first, second = square(dots[t], dots[t + 1])
            sums[t] = sums[t] + first * scale
            sums[t + 1] = sums[t + 1] + second * scale

    return Dots(width + 2, words, begin, one, two, put_dots, add_dots)
