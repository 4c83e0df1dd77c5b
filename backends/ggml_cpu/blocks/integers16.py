"""f16 GEMM with 16-bit integers, which has twice the products per instruction of f32.

SHARED values of a weight row or of an activation column share an f32 scale. The scale is the
smallest for which values fit 16 bits and the root of their sum of squares is at most NORM. Then no
sum overflows: it is at most the product of both roots (Cauchy-Schwarz).

Normally distributed values have an RMS of 4092 quantization steps. Their error is half the error of
activations rounded to f16, as in llama.cpp. Next to a value 1000 times their RMS, their RMS is 33
steps; the error of the large value is smaller than in f16. An infinity or NaN makes the results of
its row or column NaN.

A step has BLOCK values. A word has values i and i + LANES of 2 * LANES. Two steps of a panel are
scales [2 * LANES rows] | words [BLOCK][2 * LANES rows]. A step of a column is scale | words
[BLOCK / 2]; only the first scale of each TOGETHER steps is used.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.tiles import panel_function
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES

BLOCK = 64
TOGETHER = 2  # steps with one scale
SHARED = TOGETHER * BLOCK
TOP = 32767.0
NORM = 46300.0
assert (NORM + 0.5 * SHARED**0.5) ** 2 < 2**31  # rounding adds up to 0.5 to each value
TINY = 1e-30  # blocks with a smaller maximum become zeros: its inverse may overflow
SQUARES = 1e-30, 1e30  # range in which f32 sums of squares are accurate; else use an upper bound

WORDS = BLOCK // 2
WORD = 4 * LANES
ROW = 2 * WORD
K_BLOCK = 24  # steps of a panel at a time: 98 KiB for vectors of 16 lanes
SPAN = 2 * LANES


@fn
def panel_bytes(steps: int) -> int:
    return ((steps + TOGETHER - 1) // TOGETHER + WORDS * steps) * ROW


def build_scale(load_n: Function, size: int, most: float, length: int) -> Function:
    least_sum, most_sum = SQUARES

    @fn
    def scale(x, n):
        """Return the scale of up to `length` values at x; NaN if a value is not finite.

        The scaled values are at most `most`, and their norm is at most NORM.
        """
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
        """Return (largest magnitude) / most of n values, or NaN if a value is not finite."""
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
        """Return up to 2 * LANES values times `factor` as LANES words of two 16-bit integers."""
        first = v.to_i32(v.vround(load_n(x, n) * factor))
        second = v.to_i32(v.vround(load_n(x + size * LANES, n - LANES) * factor))
        return (first & 0xFFFF) | (second << 16)

    return words


@fn
def load_f32_n(address, n):
    return v.f32_load_n(address, n)


_column_scale, _column_words = build_scale(load_f32_n, 4, TOP, SHARED), _words(load_f32_n, 4)


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
    """Return `Weight.unpack` for `size`-byte elements; load_n(address, n) converts n to f32."""
    scale, words = build_scale(load_n, size, TOP, SHARED), _words(load_n, size)

    @fn
    def some_rows(src, stride, rows, n, dst):
        """Pack SHARED values of LANES rows and prefetch the next; missing rows repeat the last."""
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
    """Return `Weight.tile`; apart: distance in bytes between the sums of two columns."""

    @panel_function(width)
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
