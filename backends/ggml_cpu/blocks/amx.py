"""AMX: which register of the CPU has which part of a product of bf16.

A register C of sums has a column of the other operand in each row, and in its words the rows of a
panel; A has pairs of values of these columns, B those of the panel. Two tiles of columns are
multiplied at a time, where there are two, so that each register that is loaded is used twice.
Columns stream past a panel, which stays in the L1 cache. All tiles are read as full ones: what a
narrower one has not is what lies behind it, and what comes of that nobody reads.
"""

from __future__ import annotations

import struct

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.tiles import padded
from ggml_cpu.kernel import fn
from ggml_cpu.target import LANES

ROWS = 16  # of a register: columns of a full tile
WORDS = 16  # of a row of a register
LINE = 4 * WORDS  # bytes of a step of a column
ROW = 8 * LANES  # bytes of a row of two registers of a panel, which lie side by side; or of sums
HALF = 4 * LANES
REGISTER = WORDS * ROW  # bytes of a step of a panel
BEHIND = ROWS * LINE  # bytes behind the columns that are read
Shape = tuple[int, int]  # rows, words


def configuration(*shapes: Shape) -> bytes:
    """Return the configuration of registers 0, 1, ..., as the CPU reads it."""
    rows, words = (list(numbers) for numbers in zip(*shapes, strict=True))
    spare = [0] * (16 - len(shapes))
    n_bytes = [4 * n for n in words]
    return struct.pack("<BB14x16H16B", 1, 0, *n_bytes, *spare, *rows, *spare)


# Sums of two tiles and 32 rows, pairs of two tiles, and those of 32 rows of a panel.
C, C_NEXT, D, D_NEXT, A, A_NEXT, B, B_NEXT = range(8)
REGISTERS = configuration(*[(ROWS, LANES)] * 4, *[(ROWS, WORDS)] * 2, *[(WORDS, LANES)] * 2)


@fn
def tile_of(c, n):
    """(first column, width) of the tile that column c of n lies in."""
    first = c // ROWS * ROWS
    return first, min(ROWS, padded(n) - first)


@fn
def begin():
    """Before a kernel multiplies."""
    v.amx_configure(v.table(REGISTERS))


@fn
def end():
    v.amx_release()


@fn
def multiply(w, columns, width, steps, out, more):
    """A panel times a tile: sums [width][rows], to which `out` has [ROWS][rows] of room, are added
    to those there with `more`."""
    if more:
        v.amx_load(C, out, ROW, ROWS, LANES)
        v.amx_load(C_NEXT, out + HALF, ROW, ROWS, LANES)
    else:
        v.amx_zero(C)
        v.amx_zero(C_NEXT)
    for _ in range(steps):
        v.amx_stream(A, columns, LINE, ROWS, WORDS)
        v.amx_load(B, w, ROW, WORDS, LANES)
        v.amx_load(B_NEXT, w + HALF, ROW, WORDS, LANES)
        v.amx_dot_bf16(C, A, B)
        v.amx_dot_bf16(C_NEXT, A, B_NEXT)
        w += REGISTER
        columns += LINE * width
    v.amx_store(C, out, ROW, ROWS, LANES)
    v.amx_store(C_NEXT, out + HALF, ROW, ROWS, LANES)


@fn
def multiply_two(w, columns, others, steps, out, more):
    """The same for two full tiles, into `out` [2 * ROWS][rows]."""
    second = out + ROW * ROWS
    if more:
        v.amx_load(C, out, ROW, ROWS, LANES)
        v.amx_load(C_NEXT, out + HALF, ROW, ROWS, LANES)
        v.amx_load(D, second, ROW, ROWS, LANES)
        v.amx_load(D_NEXT, second + HALF, ROW, ROWS, LANES)
    else:
        v.amx_zero(C)
        v.amx_zero(C_NEXT)
        v.amx_zero(D)
        v.amx_zero(D_NEXT)
    for _ in range(steps):
        v.amx_stream(A, columns, LINE, ROWS, WORDS)
        v.amx_load(B, w, ROW, WORDS, LANES)
        v.amx_dot_bf16(C, A, B)
        v.amx_stream(A_NEXT, others, LINE, ROWS, WORDS)
        v.amx_dot_bf16(D, A_NEXT, B)
        v.amx_load(B_NEXT, w + HALF, ROW, WORDS, LANES)
        v.amx_dot_bf16(C_NEXT, A, B_NEXT)
        v.amx_dot_bf16(D_NEXT, A_NEXT, B_NEXT)
        w += REGISTER
        columns += LINE * ROWS
        others += LINE * ROWS
    v.amx_store(C, out, ROW, ROWS, LANES)
    v.amx_store(C_NEXT, out + HALF, ROW, ROWS, LANES)
    v.amx_store(D, second, ROW, ROWS, LANES)
    v.amx_store(D_NEXT, second + HALF, ROW, ROWS, LANES)
