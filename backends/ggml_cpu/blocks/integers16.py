"""f16 weights times many columns, as 16-bit integers: twice the products of f32 in an instruction.

SHARED values share an f32 scale, in rows of weights as in columns of activations. It is as small as
16 bits allow and as the root of their sum of squares may be: where that is at most NORM on both
sides no sum overflows, since none exceeds the product of the two (Cauchy-Schwarz). Normal values
are 4092 steps on average, so the error is half of that of activations rounded to f16, which
llama.cpp does; those beside a value 1000 times as large are 22, and that one is off by less than
in f16. An infinity or a NaN anywhere makes the sums of its row or column NaN.

A step has BLOCK of them, and a word values i and i + LANES of 2 * LANES. Two steps of a panel:
scales [2 * LANES rows] | words [BLOCK][2 * LANES rows]; a step of a column: scale | words
[BLOCK / 2], where the scale is that of this step and the next; the next one's is not used.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.tiles import several
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES

BLOCK = 64
TOGETHER = 2  # steps with one scale
SHARED = TOGETHER * BLOCK
TOP = 32767.0
NORM = 46300.0
assert (NORM + 0.5 * SHARED**0.5) ** 2 < 2**31  # rounding adds up to half of one to each
TINY = 1e-30  # blocks whose largest value is smaller count as zeros: its inverse may overflow
SQUARES = 1e-30, 1e30  # sums of squares that are right in f32; for others the largest they can be

WORDS = BLOCK // 2
WORD = 4 * LANES
ROW = 2 * WORD
K_BLOCK = 24  # steps of a panel at a time: 98 KiB where a vector has 16 lanes
SPAN = 2 * LANES


@fn
def panel_bytes(steps: int) -> int:
    return ((steps + TOGETHER - 1) // TOGETHER + WORDS * steps) * ROW


def scale_of(load_n: Function, size: int, most: float, length: int) -> Function:
    least_sum, most_sum = SQUARES

    @fn
    def scale(x, n):
        """What one stands for among the up to `length` values at x; none is above most."""
        top, sums = v.f32(0.0), v.f32(0.0)
        for i in range(0, length, LANES):
            value = load_n(x + size * i, n - i)
            top = v.vmax(top, v.vabs(value))
            sums = v.fma(value, value, sums)
        largest, squares = v.vmaxval(top), v.float32(v.vsum64(sums))
        if squares != squares:
            return squares
        if largest < TINY:
            return v.float32(0)
        norm = v.float32(largest * v.float32(length**0.5))
        if least_sum < squares < most_sum:
            norm = v.sqrtf(squares)
        needed = max(largest / v.float32(most), norm / v.float32(NORM))
        return v.float32(needed + largest * v.float32(0))  # NaN for an infinity

    return scale


def row_scale(load_n: Function, size: int, most: float) -> Function:
    @fn
    def scale(x, n):
        """What one stands for in a row of n values, none of which is above most; NaN where one of
        them is not finite."""
        top, bad = v.f32(0.0), v.f32(0.0)
        for i in range(0, n, LANES):
            value = load_n(x + size * i, n - i)
            top = v.vmax(v.vabs(value), top)
            bad = v.fma(value, 0.0, bad)
        largest, nothing = v.vmaxval(top), v.float32(v.vsum(bad))
        if largest < TINY:
            largest = v.float32(0)
        return v.float32(largest / v.float32(most) + nothing)

    return scale


@fn
def inverse(scale):
    if scale > 0:
        return v.float32(v.float32(1) / scale)
    return v.float32(0)


def _words(load_n: Function, size: int) -> Function:
    @fn
    def words(x, n, factor):
        """LANES words of the up to 2 * LANES values at x, multiplied by `factor`."""
        first = v.to_i32(v.vround(load_n(x, n) * factor))
        second = v.to_i32(v.vround(load_n(x + size * LANES, n - LANES) * factor))
        return (first & 0xFFFF) | (second << 16)

    return words


@fn
def load_f32_n(address, n):
    return v.f32_load_n(address, n)


_column_scale, _column_words = scale_of(load_f32_n, 4, TOP, SHARED), _words(load_f32_n, 4)


@fn
def pack(x, n, to):
    for i in range(0, n, BLOCK):
        if i % SHARED == 0:
            scale = _column_scale(x + 4 * i, n - i)
            factor = inverse(scale)
        v.st_f32(to, scale)
        for j in range(0, BLOCK, SPAN):
            v.store(to + 4 + 2 * j, _column_words(x + 4 * (i + j), n - i - j, factor))
        to += 4 * (WORDS + 1)


INTEGERS = Activations("i16", BLOCK, 4 * (WORDS + 1), pack)


def unpacker(load_n: Function, size: int) -> Function:
    """Return `Weight.unpack` of `size`-byte elements; load_n(address, n): the first n as f32."""
    scale, words = scale_of(load_n, size, TOP, SHARED), _words(load_n, size)

    @fn
    def some_rows(src, stride, rows, n, dst):
        """SHARED values of LANES rows, the last of them repeated; the next ones are fetched."""
        for r in range(LANES):
            row = src + min(r, rows - 1) * stride
            for i in range(0, SHARED * size, 64):
                v.prefetch(row + SHARED * size + i)
            v.st_f32(dst + 4 * r, scale(row, n))
        for first in range(0, min(n, SHARED), SPAN):
            tile = v.i32_regs(LANES)
            for r in range(LANES):
                row = src + min(r, rows - 1) * stride + first * size
                tile[r] = words(row, n - first, inverse(v.ld_f32(dst + 4 * r)))
            v.transpose(tile)
            to = dst + (first // 2 + 1) * ROW
            for i in range(LANES):
                v.store(to + i * ROW, tile[i])

    @fn
    def unpack(src, stride, rows, n, dst):
        for i in range(0, n, SHARED):
            some_rows(src + i * size, stride, min(rows, LANES), n - i, dst)
            if rows > LANES:
                second = src + LANES * stride + i * size
                some_rows(second, stride, rows - LANES, n - i, dst + WORD)
            dst += panel_bytes(TOGETHER)

    return unpack


def tile(width: int, apart: int = ROW) -> Function:
    """Return `Weight.tile`; apart: bytes from the sums of a column to those of the next."""

    @several(width)
    def multiply(w, a, steps, out):
        for t in range(width):
            v.store(out + apart * t, v.f32(0.0))
            v.store(out + apart * t + WORD, v.f32(0.0))
        for s in range(0, steps, TOGETHER):
            x_scale, y_scale, scales = v.f32_load(w), v.f32_load(w + WORD), a
            w += ROW
            first = v.i32_regs(width)
            second = v.i32_regs(width)
            for _ in range(min(TOGETHER, steps - s)):
                a += 4 * width
                for _ in range(WORDS):
                    x, y = v.i16_load(w), v.i16_load(w + WORD)
                    for t in range(width):
                        column = v.as_i16(v.i32_bcast(a + 4 * t))
                        first[t] = v.dot2(first[t], x, column)
                        second[t] = v.dot2(second[t], y, column)
                    w += ROW
                    a += 4 * width
            for t in range(width):
                add_scaled(out + apart * t, first[t], x_scale, scales + 4 * t)
                add_scaled(out + apart * t + WORD, second[t], y_scale, scales + 4 * t)

    return multiply


@fn
def add_scaled(at, dots, scale, column_scale):
    both = scale * v.f32_bcast(column_scale)
    v.store(at, v.fma(v.to_f32(dots), both, v.f32_load(at)))
