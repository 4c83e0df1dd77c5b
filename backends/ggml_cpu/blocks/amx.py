"""AMX matrix multiplication in bf16 (TDPBF16PS), and its assignment of tile registers.

Accumulators C and D have one row per activation column and one f32 per panel row. A has pairs of
values of these columns, B pairs of the panel rows. `multiply_two` multiplies two tiles of columns
at once, so that each loaded register is used twice. The panel remains in the L1 cache; columns are
loaded with a streaming hint (TILELOADDT1). Loads of a narrow tile always have 16 columns: the extra
columns are the bytes after the tile, and their sums are ignored.
"""

from __future__ import annotations

import struct

from ggml_cpu import vocabulary as v
from ggml_cpu.blocks.tiles import pad_columns
from ggml_cpu.kernel import fn
from ggml_cpu.target import LANES

ROWS = 16  # rows of a tile register: columns of a full tile
WORDS = 16  # 32-bit words in a row of a tile register
LINE = 4 * WORDS  # bytes of one step of a column
ROW = 8 * LANES  # bytes of a row of two adjacent tile registers, of a panel or of sums
HALF = 4 * LANES
REGISTER = WORDS * ROW  # bytes of one step of a panel: two tile registers
BEHIND = ROWS * LINE  # readable bytes that must follow the columns
Shape = tuple[int, int]  # rows, words


def configuration(*shapes: Shape) -> bytes:
    """Return the 64-byte operand of LDTILECFG for tile registers 0, 1, ..."""
    rows, words = (list(numbers) for numbers in zip(*shapes, strict=True))
    spare = [0] * (16 - len(shapes))
    n_bytes = [4 * n for n in words]
    return struct.pack("<BB14x16H16B", 1, 0, *n_bytes, *spare, *rows, *spare)


# Sums of two column tiles (C, D) and 32 panel rows; pairs of two column tiles; pairs of 32 panel
# rows.
C, C_NEXT, D, D_NEXT, A, A_NEXT, B, B_NEXT = range(8)
REGISTERS = configuration(*[(ROWS, LANES)] * 4, *[(ROWS, WORDS)] * 2, *[(WORDS, LANES)] * 2)


@fn
def find_tile(c, n):
    """Return (first column, width) of the tile that contains column c of n."""
    first = c // ROWS * ROWS
    return first, min(ROWS, pad_columns(n) - first)


@fn
def begin():
    """Load the tile configuration; call it before `multiply`."""
    v.amx_configure(v.table(REGISTERS))


@fn
def end():
    v.amx_release()


@fn
def multiply(w, columns, width, steps, out, more):
    """Multiply a panel by a tile of columns into `out` f32 [width][rows]; `more`: accumulate.

    `out` must have space for [ROWS][rows].
    """
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
    """Multiply a panel by two full tiles into `out` f32 [2 * ROWS][rows]; `more`: accumulate."""
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
