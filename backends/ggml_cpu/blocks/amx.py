"""AMX: which register of the CPU has which part of a product of bf16.

A register C of sums has a column of the other operand in each row, and in its words the rows of a
panel; A has pairs of values of these columns, B those of the panel. Columns come in tiles of TILE
or, the narrower ones, of NARROW at a time: what a tile has not is read from what is reserved behind
it (tiles.py:padded), and what comes of it nobody reads.
"""

from __future__ import annotations

import struct

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES, TILE

NARROW = 4
WORDS = 16  # of a row of a register
Shape = tuple[int, int]  # rows, words


def configuration(*shapes: Shape) -> bytes:
    """Of registers 0, 1, ..., as the CPU reads it."""
    rows, words = (list(numbers) for numbers in zip(*shapes, strict=True))
    spare = [0] * (16 - len(shapes))
    n_bytes = [4 * n for n in words]
    return struct.pack("<BB14x16H16B", 1, 0, *n_bytes, *spare, *rows, *spare)


# For tiles of TILE columns the sums of 32 rows, for narrower ones of 16; and 32 rows of a panel.
C, C_NEXT, A, C_NARROW, A_NARROW, B, B_NEXT = range(7)
_SHAPES = (
    (TILE, LANES), (TILE, LANES), (TILE, WORDS), (NARROW, LANES), (NARROW, WORDS),
    (WORDS, LANES), (WORDS, LANES),
)  # fmt: skip
REGISTERS = configuration(*_SHAPES)


def around(registers: bytes) -> tuple[Function, Function]:
    """What a kernel calls before and after it multiplies with registers of this configuration."""
    @fn
    def begin():
        v.amx_configure(v.table(registers))

    @fn
    def end():
        v.amx_release()

    return begin, end
