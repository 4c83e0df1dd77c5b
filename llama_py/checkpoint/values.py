"""Functions from stored weights to weights of a GGUF file."""

from __future__ import annotations

import numpy as np

from llama_py.checkpoint.arrays import Array


def decay(log: Array) -> Array:
    """Return the negative exponentials of A_log, rounded from float64: torch's differ in the last
    bit of some."""
    return -np.exp(log.astype(np.float64))


def undo_decay(a: Array) -> Array:
    """Return an A_log with these values of `decay`. Prefers values with few digits."""
    log = np.log(-a.astype(np.float64)).astype(np.float32)
    bits = (log.view(np.uint32).astype(np.int64) + 0x8000 >> 16 << 16).astype(np.uint32)
    steps = [np.nextafter(log, np.float32(side)) for side in (np.inf, -np.inf)]
    found = log.copy()
    for other in (*steps, log, log.astype(np.float16).astype(np.float32), bits.view(np.float32)):
        found = np.where(decay(other).astype(np.float32) == a, other, found)
    return found


def minus_one(x: Array) -> Array:
    """Return the stored values of a norm, the inverse of `plus_one`."""
    return x - 1


def plus_one(x: Array) -> Array:
    """Return the weights of a norm that are stored less 1."""
    return x + 1
