"""Sixteen unevenly spaced levels (quantize_row_iq4_nl_impl)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants._blocks import F32, TINY, extreme, inverse, ordered_sum

LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def nearest_level(x: F32) -> npt.NDArray[np.uint8]:
    """Index of the level next to x; the upper one when two are equally far."""
    upper = np.clip(np.searchsorted(LEVELS, x, side="right"), 1, 15)
    below = x - LEVELS[upper - 1] < LEVELS[upper] - x
    return np.where(below, upper - 1, upper).astype(np.uint8)


def fit(x: F32, n_try: int) -> F32:
    """Scale [..., 1] of groups x [..., n]: least squares with weights x², from 2·n_try+1 starts."""
    top = extreme(x)
    zero = np.abs(top) < TINY
    top = np.where(zero, np.float32(1), top)
    first = top / LEVELS[0] if n_try < 0 else -top / LEVELS[0]
    scale, best = _least_squares(x, np.float32(1) / first)
    for step in range(-n_try, n_try + 1):
        scale2, best2 = _least_squares(x, (np.float32(step) + LEVELS[0]) / top, best)
        better = scale2 != 0
        scale, best = np.where(better, scale2, scale), np.where(better, best2, best)
    return np.where(zero, np.float32(0), scale)


def _least_squares(x: F32, factor: F32, best: F32 | None = None) -> tuple[F32, F32]:
    """Return the refitted scale and its gain; 0 if it does not exceed `best`."""
    level = LEVELS[nearest_level(factor * x)]
    weight = x * x
    xq, qq = ordered_sum(weight * level * x), ordered_sum(weight * level * level)
    good = qq > 0 if best is None else (qq > 0) & (xq * xq > best * qq)
    scale = np.where(good, xq / np.where(good, qq, 1), np.float32(0))
    return scale, scale * xq


def encode(x: F32, scale: F32) -> npt.NDArray[np.uint8]:
    return nearest_level(inverse(scale) * x)
