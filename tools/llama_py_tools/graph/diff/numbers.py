"""How far values are from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_py.check import EXACT, ROUNDED
from ggml_py.dump import Record
from ggml_py.types import BY_NAME

Values = NDArray[np.float32]  # [ne3, ne2, ne1, ne0]


@dataclass(frozen=True, slots=True)
class Stats:
    """Of what is finite: least, largest, mean; and how many values are not."""

    low: float
    high: float
    mean: float
    n_nan: int
    n_inf: int

    @classmethod
    def of(cls, values: Values) -> Stats:
        finite = values[np.isfinite(values)].astype(np.float64)
        n_nan = int(np.isnan(values).sum())
        n_inf = values.size - finite.size - n_nan
        if not finite.size:
            return cls(np.nan, np.nan, np.nan, n_nan, n_inf)
        return cls(float(finite.min()), float(finite.max()), float(finite.mean()), n_nan, n_inf)


@dataclass(frozen=True, slots=True)
class Error:
    """Of one value beside another.

    nmse      squared differences over squares; infinite where only one of two is finite. Of whole
              numbers, the share of those that differ.
    largest   difference, at ggml's place `at`, of `found` from `expected`
    """

    nmse: float
    largest: float = 0.0
    at: tuple[int, ...] = ()
    found: float = 0.0
    expected: float = 0.0


NONE = Error(0.0)


def error_of(expected: Values, found: Values, whole: bool = False) -> Error:
    """Of arrays of one shape. whole: of numbers that say where something is, in any order within a
    row, for equal keys may be sorted either way."""
    if whole:
        expected, found = np.sort(expected), np.sort(found)
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    if same.all():
        return NONE
    e, f = expected.astype(np.float64), found.astype(np.float64)
    odd = ~same & ~(np.isfinite(e) & np.isfinite(f))
    if odd.any():
        return _worst(np.inf, odd, e, f)
    apart = np.where(same, 0.0, np.subtract(f, e, where=~same, out=np.zeros_like(e)))
    scale = float(np.square(e, where=np.isfinite(e), out=np.zeros_like(e)).sum())
    nmse = float(np.square(apart).sum()) / (scale or 1.0)
    distance = np.abs(apart)
    return _worst(float((~same).mean()) if whole else nmse, distance == distance.max(), e, f)


def _worst(nmse: float, where: NDArray[np.bool_], e: NDArray[np.float64], f: NDArray[np.float64]
) -> Error:  # fmt: skip
    place = tuple(int(i) for i in np.argwhere(where)[0])
    largest = abs(f[place] - e[place]) if np.isfinite(e[place]) & np.isfinite(f[place]) else np.inf
    return Error(nmse, float(largest), place[::-1], float(f[place]), float(e[place]))


def is_whole(record: Record) -> bool:
    """Whether a node gives whole numbers."""
    return str(record["type"]).startswith("i")


def rounding(record: Record, step: Sequence[Record] = ()) -> float:
    """The largest error of a node that has the same inputs in both runs which rounding explains: it
    may be larger where a source, or the result, of it or of nodes of the same step is kept in 16
    bits or fewer."""
    if is_whole(record):
        return 0.0
    kinds = {k for r in (record, *step) for k in (r["type"], *(s["type"] for s in r["src"]))}
    types = [BY_NAME[kind] for kind in kinds]
    return ROUNDED if any(t.block_size > 1 or t.type_size < 4 for t in types) else EXACT
