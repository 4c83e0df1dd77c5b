"""Transposition of a square register tile."""

from __future__ import annotations

from numba.core import types

from .tiles import ALIGN, Tile
from .vec import I32, intrinsic, permute


@intrinsic
def transpose(typing, tile):
    """Transpose a tile of n vectors of n lanes in place.

    Algorithm: interleave the first half of the rows with the second half, log2(n) times.
    """
    if not isinstance(tile, Tile) or tile.count != tile.vec.n:
        return None

    def emit(context, builder, sig, args):
        n = tile.count
        places = [builder.gep(args[0], [I32(0), I32(i)]) for i in range(n)]
        rows = [builder.load(place, align=ALIGN) for place in places]
        first = [i + side for i in range(n // 2) for side in (0, n)]
        second = [i + n // 2 for i in first]
        for _ in range(n.bit_length() - 1):
            pairs = list(zip(rows[: n // 2], rows[n // 2 :], strict=True))
            rows = [permute(builder, a, half, b) for a, b in pairs for half in (first, second)]
        for row, place in zip(rows, places, strict=True):
            builder.store(row, place, align=ALIGN)
        return context.get_dummy_value()

    return types.void(tile), emit
