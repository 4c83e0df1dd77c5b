"""Division of a matmul's columns into tiles.

n columns are divided into full tiles of TILE columns and a few narrower ones. The tile that starts
at column c has offset c * (bytes per column) in the packed activations, for any widths. The last
tile may be wider than the remaining columns; its padding repeats the last column.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu.kernel import Helper, fn, routine
from ggml_cpu.target import TILE

EIGHT = TILE == 12  # True if partial tiles may have eight columns
WIDTHS = (TILE, 8, 4, 2, 1) if EIGHT else (TILE, 4, 2, 1)
FULL: int = {12: 10, 8: 7}.get(TILE, TILE)  # columns from which a full tile is the cheapest
GRAIN = 4  # the tile widths of n columns add up to at most n rounded up to GRAIN


@fn
def tile_width(n):
    """Return the width of the next tile if n columns remain."""
    if n >= FULL:
        return TILE
    if EIGHT and n >= 6:
        return 8
    if n >= 3:
        return 4
    return n


@fn
def find_tile(c, n):
    """Return (first column, width) of the tile that contains column c of n."""
    first = c // TILE * TILE
    width = tile_width(n - first)
    while first + width <= c:
        first += width
        width = tile_width(n - first)
    return first, width


@fn
def pad_columns(n: int) -> int:
    """Return the number of columns to allocate for n columns."""
    return (n + GRAIN - 1) // GRAIN * GRAIN


@fn
def padded_columns(i: int, n: int) -> int:
    """Return the number of columns allocated for i matrices of n columns each."""
    return i * pad_columns(n)


def panel_function(columns: int) -> Callable[[Helper], Helper]:
    """Return the decorator of a panel kernel for `columns` columns.

    `fn` inlines the kernel for one column, which decoding uses; `routine` makes it a function.
    """
    return fn if columns == 1 else routine
