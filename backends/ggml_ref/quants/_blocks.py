"""Tools of several block formats: fields of a block, nibbles, and ggml's ways of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

TINY = np.float32(1e-15)  # groups below this are zero (ggml-quants.c:GROUP_MAX_EPS)


def fields(blocks: U8, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return [n, type_size] bytes as n records."""
    return np.ascontiguousarray(blocks).view(layout).reshape(-1)


def groups(x: npt.NDArray[np.floating], size: int) -> F32:
    """Return values as float32 [n, size]."""
    return np.asarray(x, np.float32).reshape(-1, size)


def float32(x: npt.NDArray[Any]) -> F32:
    return x.astype(np.float32)


def to_half(x: npt.NDArray[Any]) -> npt.NDArray[np.float16]:
    return x.astype(np.float16)


def low_high(q: U8) -> U8:
    """Split [..., n] bytes into [..., 2n] nibbles: all low nibbles, then all high nibbles."""
    return np.concatenate([q & 15, q >> 4], axis=-1)


def pack_low_high(q: npt.NDArray[Any]) -> U8:
    """Pack nibbles into bytes, the inverse of low_high."""
    low, high = np.split(q.astype(np.uint8), 2, axis=-1)
    return low | high << np.uint8(4)


def inverse(d: F32) -> F32:
    """Return 1/d, and 0 for 0."""
    with np.errstate(divide="ignore"):
        return np.where(d == 0, np.float32(0), np.float32(1) / d)


def round_away(x: F32) -> F32:
    """Round as C's roundf does: halves away from zero."""
    size = abs(x)
    whole: F32 = np.floor(size)
    return np.copysign(whole + (size - whole >= 0.5), x)


def extreme(x: F32) -> F32:
    """Return the first value of largest magnitude, with its sign: [..., n] -> [..., 1]."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)


def ordered_sum(x: F32) -> F32:
    """Sum over the last axis, [..., 1], term by term in float32 as the C loops add."""
    return np.add.accumulate(x, axis=-1)[..., -1:]


def nearest(values: F32, x: F32) -> npt.NDArray[np.intp]:
    """Index of the value next to x; the lower index when two are equally far."""
    index: npt.NDArray[np.intp] = abs(values - x[..., None]).argmin(axis=-1)
    return index
