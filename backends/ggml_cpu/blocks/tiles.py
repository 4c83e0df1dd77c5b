"""Tiles of the columns of a product, and a column's address in its tile.

n columns become full tiles of TILE and a few narrower ones. A tile of width T that starts at column
c lies c columns into the packed activations, so widths need not be remembered. The last tile may be
wider than the columns left; its unused places repeat the last column.
"""

from __future__ import annotations

from collections.abc import Callable

from ggml_cpu.kernel import Helper, fn, routine
from ggml_cpu.target import TILE

EIGHT = TILE == 12  # whether there are tiles of eight columns besides full ones
WIDTHS = (TILE, 8, 4, 2, 1) if EIGHT else (TILE, 4, 2, 1)
FULL: int = {12: 10, 8: 7}.get(TILE, TILE)  # columns from which a full tile is the cheapest
GRAIN = 4  # the widths of n columns never add up to more than n rounded up to this


@fn
def tile_width(n):
    """Width of the tile to take when n columns are left."""
    if n >= FULL:
        return TILE
    if EIGHT and n >= 6:
        return 8
    if n >= 3:
        return 4
    return n


@fn
def tile_of(c, n):
    """(first column, width) of the tile that column c of n lies in."""
    first = c // TILE * TILE
    width = tile_width(n - first)
    while first + width <= c:
        first += width
        width = tile_width(n - first)
    return first, width


@fn
def padded(n: int) -> int:
    """Columns to reserve for n."""
    return (n + GRAIN - 1) // GRAIN * GRAIN


@fn
def columns_before(i: int, n: int) -> int:
    """Columns reserved for the matrices before number i, of n columns each; for i of them."""
    return i * padded(n)


def several(columns: int) -> Callable[[Helper], Helper]:
    """Return the declaration for products of a panel with so many columns: apart, but for one
    column, which decoding waits for."""
    return fn if columns == 1 else routine
