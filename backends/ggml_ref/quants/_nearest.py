"""The points of a codebook next to given values, for the quantization of the iq types.

A codebook is a part of a lattice: the values of its points are levels. Rounding to levels gives a
lattice point. Only the NEAR points nearest to that point are compared (like in ggml, whose lists
have other lengths). About one search in a hundred misses a slightly better point.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from ggml_py.grids import grid
from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32

Indices = npt.NDArray[np.intp]

NEAR = 32
FRACTION = 256  # Values are rounded to steps of 1/256: float32 sums are exact, in any order.
PIECE = 1024  # searches at a time


class Search:
    """Points [n, length] of whole numbers, to be searched."""

    def __init__(self, points: F32) -> None:
        self.points = points
        self.levels = np.unique(points)
        self.step = (self.levels[-1] - self.levels[0]) / np.float32(len(self.levels) - 1)
        axes = np.meshgrid(*[self.levels] * points.shape[1], indexing="ij")
        lattice = np.stack(axes, axis=-1).reshape(-1, points.shape[1])
        self.near = np.concatenate([self._around(part) for part in block_rows(lattice, 256)])
        half_squares = np.float32(FRACTION / 2) * (points * points).sum(axis=1)
        extended = np.concatenate([points, -half_squares[:, None]], axis=1)
        self.table = np.ascontiguousarray(extended[self.near].transpose(0, 2, 1))

    def _around(self, centres: F32) -> Indices:
        """Return indices [m, NEAR] of points around centres [m, length]; of equals, the first."""
        squares = (self.points * self.points).sum(axis=1)
        far = (squares - 2 * (centres @ self.points.T)).astype(np.int64)  # less center²
        order = far * len(self.points) + np.arange(len(self.points))
        order = np.sort(np.partition(order, NEAR - 1, axis=1)[:, :NEAR], axis=1)
        return order % len(self.points)

    def nearest(self, x: F32) -> Indices:
        """Index [...] of the point p of largest x·p - p²/2 for values x [..., length]."""
        parts = block_rows(x.reshape(-1, x.shape[-1]), PIECE)
        return np.concatenate([self._nearest(part) for part in parts]).reshape(x.shape[:-1])

    def _nearest(self, x: F32) -> Indices:
        limit = 2 * np.abs(self.levels).max()
        cell = np.clip(np.rint((x - self.levels[0]) / self.step), 0, len(self.levels) - 1)
        cells = (len(self.levels),) * x.shape[1]
        places: Indices = np.ravel_multi_index(tuple(cell.astype(np.intp).T), cells, mode="clip")
        fine = np.ones((len(x), 1, x.shape[1] + 1), np.float32)  # 1: by half a square
        fine[:, 0, :-1] = np.rint(np.clip(x, -limit, limit) * np.float32(FRACTION))
        best: Indices = np.matmul(fine, self.table[places])[:, 0].argmax(axis=1)
        return self.near[places, best]


class Either(Search):
    """The points of two codebooks of one size, with the second codebook's points last."""

    def __init__(self, first: Search, second: Search) -> None:
        self.parts = first, second
        self.points = np.concatenate([first.points, second.points])

    def nearest(self, x: F32) -> Indices:
        first, second = (part.nearest(x) for part in self.parts)
        second = second + len(self.parts[0].points)
        distances = (((x - self.points[i]) ** 2) for i in (first, second))
        one, other = (block.ordered_sum(d)[..., 0] for d in distances)
        return np.where(other < one, second, first)


def block_rows(x: F32, n: int) -> list[F32]:
    """Return the rows of x, n at a time; at least one part."""
    return [x[i : i + n] for i in range(0, max(len(x), 1), n)]


@cache
def search(name: str) -> Search:
    return Search(block.float32(grid(name)))


@cache
def shift_codebook(delta: float) -> Search:
    """Return the codebook of iq1, eight times as large, with a delta: integers."""
    return Search(8 * (block.float32(grid("iq1")) + np.float32(delta)))
