"""Test cases of every op that sums long rows: values of one sign, and values that cancel.

The error bound is a few roundings of the result: ggml sums in double, so a backend must too.
"""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from llama_py_tools.test_backend_ops.case import Array, Leaves

SIZES = {"alike": 1 << 19, "cancelling": 4098}
LONG = [*SIZES]
BOUND = 1e-12


def alike(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return equal values: the rounding errors have the same sign."""
    return np.full(shape, 0.1)


def cancelling(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return small values between two large values, which cancel."""
    values = rng.uniform(0.5, 1.5, shape)
    values[..., :: shape[-1] - 1] = 1e8, -1e8
    return values


def long_row(new: Leaves, long: str) -> Tensor:
    return new((SIZES[long],), init=alike if long == "alike" else cancelling)
