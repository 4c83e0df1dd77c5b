"""Search tables of a codebook (ggml-quants.c:iq2xs_init_impl, iq3xs_init_impl).

A code contains the levels of a point: two bits per level for points of 8 values, three for points
of 4 values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ggml_py.grids import grid

I32 = npt.NDArray[np.int32]

BITS = {8: 2, 4: 3}  # bits per level, by the length of points
PART = 512  # codes to process at a time
PADDING = np.zeros(16, np.int32)  # the kernels read lists 16 entries at a time


@dataclass(frozen=True, eq=False)
class Tables:
    """Search tables of a codebook.

    of_code  index of the point of each code; for codes off the grid, -1 - offset of its list
    lists    for each list, the number of near points, then index << 16 | code, nearest first
    codes    code of each index
    """

    of_code: I32
    lists: I32
    codes: I32

    @property
    def addresses(self) -> tuple[int, ...]:
        return tuple(int(a.ctypes.data) for a in (self.of_code, self.lists, self.codes))


@cache
def tables(name: str, distances: int) -> Tables:
    """Return the tables of a codebook; a list has all points at the `distances` least distances."""
    points = grid(name).astype(np.int64)
    places = np.searchsorted(np.unique(points), points)
    length, n_levels = points.shape[1], int(places.max()) + 1
    shifts = BITS[length] * np.arange(length)
    codes = (places << shifts).sum(1)
    of_code = np.full(1 << BITS[length] * length, -1, np.int64)
    of_code[codes] = np.arange(len(codes))
    axes = np.meshgrid(*[np.arange(n_levels)] * length, indexing="ij")
    others = np.stack(axes, -1).reshape(-1, length)
    others = others[of_code[(others << shifts).sum(1)] < 0]
    lists: list[npt.NDArray[np.int64]] = []
    at = 0
    for part in (others[i : i + PART] for i in range(0, len(others), PART)):
        for other, near in zip(part, _near_points(part, places, distances), strict=True):
            of_code[(other << shifts).sum()] = -1 - at
            lists += [np.array([len(near)]), near << 16 | codes[near]]
            at += 1 + len(near)
    whole = np.concatenate([*lists, PADDING]).astype(np.int32)
    return Tables(of_code.astype(np.int32), whole, codes.astype(np.int32))


def find_tables(name: str, distances: int) -> Callable[[], tuple[int, ...]]:
    """Return a function that returns the addresses of a codebook's tables."""
    return lambda: tables(name, distances).addresses


def _near_points(
    others: npt.NDArray[np.int64], places: npt.NDArray[np.int64], distances: int
) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the points near each of `others`, by distance, then by index."""
    squares = (others**2).sum(1)[:, None] + (places**2).sum(1) - 2 * others @ places.T
    order = np.argsort(squares, axis=1, kind="stable")
    ordered = np.take_along_axis(squares, order, axis=1)
    ring = np.cumsum(np.diff(ordered, axis=1, prepend=ordered[:, :1]) > 0, axis=1)
    return [row[r < distances] for row, r in zip(order, ring, strict=True)]
