"""Functions from stored weights to weights of a GGUF file."""

from __future__ import annotations

import numpy as np

from llama_py.checkpoint.arrays import Array


def decay(log: Array) -> Array:
    """Return the negative exponentials of A_log, rounded from float64: torch's differ in the last
    bit of some."""
    return -np.exp(log.astype(np.float64))


def plus_one(x: Array) -> Array:
    """Return the weights of a norm that are stored less 1."""
    return x + 1
