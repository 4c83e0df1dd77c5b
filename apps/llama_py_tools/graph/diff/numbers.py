"""Statistics of values, and bounds of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_py.inspection.dump import Record
from ggml_py.inspection.judge import CLOSE, EXACT, is_integer, is_rounded
from ggml_py.types import BY_NAME, GGMLType

Values = NDArray[np.float32]  # [ne3, ne2, ne1, ne0]


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of finite values: least, largest, mean; and how many values are not finite."""

    low: float
    high: float
    mean: float
    n_nan: int
    n_inf: int

    @classmethod
    def from_values(cls, values: Values) -> Stats:
        finite = values[np.isfinite(values)].astype(np.float64)
        n_nan = int(np.isnan(values).sum())
        n_inf = values.size - finite.size - n_nan
        if not finite.size:
            return cls(np.nan, np.nan, np.nan, n_nan, n_inf)
        return cls(float(finite.min()), float(finite.max()), float(finite.mean()), n_nan, n_inf)


def node_type(record: Record) -> GGMLType:
    """Return the type of a node."""
    return BY_NAME[str(record["type"])]


def is_whole(record: Record) -> bool:
    """Return True if a node gives integers."""
    return is_integer(node_type(record))


def rounding(record: Record, step: Sequence[Record] = ()) -> float:
    """Return the largest error that rounding explains of a node with the same inputs in both runs.

    Both runs round alike; if they do not, the judge decides (blame.judge). Activations within a
    step of several nodes may be rounded too.
    """
    if is_whole(record):
        return 0.0
    rounded = (is_rounded(r["op"], [BY_NAME[s["type"]] for s in r["src"]]) for r in (record, *step))
    return CLOSE if any(rounded) else EXACT
