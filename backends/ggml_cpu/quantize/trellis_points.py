"""Points of the iqN_kt types and the clusters in which they are searched.

Point i has `group` numbers of the generator of blocks/trellis.py. They are clustered by the bins of
their numbers; the centers of clusters, and the points listed for each, are ik_llama.cpp's
(QuantizerIQKT): each point is in the lists of its nearest clusters, and lists are filled up to a
multiple of eight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

FACTOR = 0xCBAC1FED
FIRST = 4096
LANES = 16
BOUNDS = (-48.0, -16.0, 16.0, 48.0)  # of the five bins of points of four numbers
PART = 2048  # points to process at a time
MARGIN = 8


@dataclass(frozen=True, eq=False)
class Points:
    """Points and their clusters; lists of clusters begin at a multiple of 16.

    values   f32 [n_points, group]
    bounds   f32, bin edges: of each number, or of all
    first    i32 [n_clusters], first place of a list
    counts   i32 [n_clusters], its length
    numbers  i32, points of all lists
    columns  f32 [n / 16, group, 16], their values
    """

    values: F32
    bounds: F32
    first: I32
    counts: I32
    numbers: I32
    columns: F32


def _generate(bits: int, group: int, absolute: bool, start: int) -> F32:
    state = np.arange(1 << bits, dtype=np.uint32) + np.uint32(start)
    values = np.empty((1 << bits, group), np.float32)
    for k in range(group):
        state *= np.uint32(FACTOR)
        values[:, k] = (state & 0x3F3F3F3F).view(np.uint8).reshape(-1, 4).sum(1) - 126.0
    return np.abs(values) if absolute else values


def _bins(values: F32, absolute: bool) -> tuple[F32, I64, int]:
    """Return bin edges, the cluster of each point, and the number of clusters."""
    if values.shape[1] == 4:
        bounds = np.array(BOUNDS, np.float32)
        bins = np.searchsorted(bounds, values, side="right")
        return bounds, bins @ (5 ** np.arange(4)), 625
    middle = np.median(values, axis=0) if absolute else (values.min(0) + values.max(0)) / 2
    bounds = middle.astype(np.float32)
    return bounds, (values > bounds) @ (1 << np.arange(8)), 256


def _squares(points: F32, centers: F32) -> F32:
    """Return squared distances of points and centers, each step of the sum rounded once."""
    total = np.zeros(np.broadcast_shapes(points.shape, centers.shape)[:-1], np.float32)
    for k in range(points.shape[-1]):
        diff = (points[..., k] - centers[..., k]).astype(np.float64)
        total = (diff * diff + total).astype(np.float32)
    return total


def _nearest(values: F32, centers: F32, neighbours: int) -> I64:
    """Return the nearest clusters of each point; the lower number of a tie first.

    More clusters than needed are compared exactly.
    """
    found, half = [], (centers.astype(np.float64) ** 2).sum(1) / 2
    for i in range(0, len(values), PART):
        part = values[i : i + PART]
        about = half - part @ centers.T.astype(np.float64)
        some = np.argpartition(about, neighbours + MARGIN, axis=1)[:, : neighbours + MARGIN]
        squares = _squares(part[:, None], centers[some]).view(np.int32).astype(np.int64)
        found.append(np.sort(squares << 16 | some)[:, :neighbours] & 0xFFFF)
    return np.concatenate(found)


def _fill(values: F32, center: F32, points: I64) -> I64:
    """Return a list with the nearest other points, so that its length is a multiple of eight."""
    squares = _squares(values, center)
    squares[points] = np.inf
    return np.concatenate([points, np.argsort(squares, kind="stable")[: -len(points) % 8]])


@cache
def trellis_points(
    bits: int, group: int, neighbours: int, absolute: bool = False, start: int = FIRST
) -> Points:
    values = _generate(bits, group, absolute, start)
    bounds, cluster, n = _bins(values, absolute)
    counts = np.bincount(cluster, minlength=n)
    sums = np.stack([np.bincount(cluster, values[:, k], n) for k in range(group)], axis=1)
    centers = sums.astype(np.float32) / np.maximum(counts, 1).astype(np.float32)[:, None]
    near = _nearest(values, centers, neighbours)
    order = np.argsort(near.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(near.ravel(), minlength=n))
    lists = [part // neighbours for part in np.split(order, ends[:-1])]
    whole = [
        points if len(points) % 8 == 0 else _fill(values, centers[i], points)
        for i, points in enumerate(lists)
    ]
    padded = [np.pad(points, (0, -len(points) % LANES)) for points in whole]
    first = np.cumsum([0, *(len(points) for points in padded[:-1])])
    all_numbers = np.concatenate(padded).astype(np.int32)
    columns = values[all_numbers].reshape(-1, LANES, group).transpose(0, 2, 1)
    return Points(
        values,
        bounds,
        first.astype(np.int32),
        np.array([len(points) for points in whole], np.int32),
        all_numbers,
        np.ascontiguousarray(columns),
    )


@cache
def _tables(sets: tuple[tuple[int, int, int, bool, int], ...]) -> tuple[I64, F32]:
    """Return six addresses of each set, and the values of all sets after each other."""
    points = [trellis_points(*one) for one in sets]
    values, rows = np.concatenate([p.values for p in points]), []
    for p in points:
        arrays = p.bounds, p.first, p.counts, p.numbers, p.columns
        rows.append([int(array.ctypes.data) for array in (values, *arrays)])
    return np.array(rows, np.int64), values


def trellis_tables(*sets: tuple[int, int, int, bool, int]) -> Callable[[], tuple[int, ...]]:
    """Return a function that returns the address of the addresses of sets of points."""
    return lambda: (int(_tables(sets)[0].ctypes.data),)
