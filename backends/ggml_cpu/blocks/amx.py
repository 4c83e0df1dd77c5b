"""AMX: which register of the CPU has which part of a product, and bytes of weights in them.

A register C of products has a column of the other operand in each row, and in its words the rows of
a panel; A has the words of these columns, B those of the panel. Columns come in tiles of TILE or,
the narrower ones, of NARROW: what a narrower one has not is read from what is reserved behind it
(tiles.py:padded), and what comes of it nobody reads.
"""

from __future__ import annotations

import struct
from typing import Any

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.activations import TOGETHER
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import AMX, LANES, TILE

NARROW = 4
Shape = tuple[int, int]  # rows, words


def configuration(*shapes: Shape) -> bytes:
    """Of registers 0, 1, ..., as the CPU reads it."""
    rows, words = (list(numbers) for numbers in zip(*shapes, strict=True))
    spare = [0] * (16 - len(shapes))
    n_bytes = [4 * n for n in words]
    return struct.pack("<BB14x16H16B", 1, 0, *n_bytes, *spare, *rows, *spare)


@fn
def nothing():
    pass


def around(registers: bytes) -> tuple[Function, Function]:
    """What a kernel calls before and after it multiplies with registers of this configuration."""
    if not registers:
        return nothing, nothing

    @fn
    def begin():
        v.amx_configure(v.table(registers))

    @fn
    def end():
        v.amx_release()

    return begin, end


def rows_of(width: int) -> int:
    """Of the registers of a tile of columns."""
    return TILE if width == TILE else NARROW


# The registers of products of bytes, by rows of C, rows and words of A, rows of B: a run has eight
# words or four.
C = {TILE: 0, NARROW: 1}
A = {(TILE, 8): 2, (TILE, 4): 3, (NARROW, 8): 4, (NARROW, 4): 5}
B = {8: 6, 4: 7}
_SHAPES = [*((rows, LANES) for rows in C), *A, *((rows, LANES) for rows in B)]
BYTES = configuration(*_SHAPES) if AMX else b""


def in_registers(width: int, words: int) -> dict[str, Any]:
    """What makes of words, a form of dots.py, one that makes the products of a run at once: its
    weights wait in `dots`, and the products are put over them."""
    rows = rows_of(width)
    a, b, c = A[rows, words], B[words], C[rows]
    stride, last = 4 * TOGETHER, words - 1
    half = words // 2

    @fn
    def begin(dots, sums):
        pass

    @fn
    def multiply(dots, columns, n):
        first = n // TOGETHER * TOGETHER * width + n % TOGETHER
        v.amx_load_words(b, dots)
        v.amx_load(a, columns + 4 * first, stride, rows, words)
        v.amx_zero(c)
        v.amx_dot_unsigned(c, a, b)
        v.amx_store_words(c, dots)

    @fn
    def one(dots, i, values, columns, n):
        dots[i] = v.as_i32(values)
        if i == last:
            multiply(dots, columns, n - last)

    @fn
    def two(dots, i, low, high, columns, n):
        dots[i] = v.as_i32(low)
        dots[i + half] = v.as_i32(high)
        if i == half - 1:
            multiply(dots, columns, n - i)

    @fn
    def into(sums, dots):
        for t in range(width):
            sums[t] = sums[t] + dots[t]

    return {"size": max(words, rows), "begin": begin, "one": one, "two": two, "into": into}
