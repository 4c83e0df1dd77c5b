"""Horizontal sums of LANES vectors, returned as the lanes of one vector."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn
from ggml_cpu.target import LANES


def _fold(count: int) -> Function:
    @fn
    def fold(tile):
        """Add adjacent lanes: tile[i] becomes the pair sums of tile[2 * i] and tile[2 * i + 1]."""
        for i in range(count):
            x, y = tile[2 * i], tile[2 * i + 1]
            tile[i] = v.evens(x, y) + v.odds(x, y)

    return fold


fold_1, fold_2, fold_4, fold_8 = (_fold(n) for n in (1, 2, 4, 8))


@fn
def lane_sums(tile):
    """Return a vector with the sum of tile[i] in lane i; overwrites the tile of LANES vectors."""
    if LANES == 16:
        fold_8(tile)
    if LANES >= 8:
        fold_4(tile)
    fold_2(tile)
    fold_1(tile)
    return tile[0]
