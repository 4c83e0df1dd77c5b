"""NumPy functions with the references' types: float64 in, float64 out.

NumPy only annotates arrays of any type, which disables the type checks of later code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ggml_ref.values import Values

Function = Callable[[Values], Values]
Pairwise = Callable[[Values, Values | float], Values]

exp: Function = np.exp
log: Function = np.log
sqrt: Function = np.sqrt
tanh: Function = np.tanh
expm1: Function = np.expm1
floor: Function = np.floor
minimum: Pairwise = np.minimum
maximum: Pairwise = np.maximum
clip: Callable[[Values, float, float], Values] = np.clip
einsum: Callable[..., Values] = np.einsum
tensordot: Callable[..., Values] = np.tensordot

Axes = int | tuple[int, ...] | None


def total(x: Values, axis: Axes = -1) -> Values:
    """Return the sum along dimensions (None: all), which keep size 1."""
    out: Values = x.sum(axis=axis, keepdims=True)
    return out


def mean(x: Values, axis: Axes = -1) -> Values:
    """Return the mean along dimensions, which keep size 1."""
    out: Values = x.mean(axis=axis, keepdims=True)
    return out


def max_along(x: Values, axis: Axes = -1) -> Values:
    """Return the maximum along dimensions, which keep size 1."""
    out: Values = x.max(axis=axis, keepdims=True)
    return out
