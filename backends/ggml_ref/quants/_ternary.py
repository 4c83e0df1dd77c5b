"""Base-3 digits of bytes: types with values -1, 0 and 1.

A byte is a fraction of 256 in base 3: multiplied by 3^n modulo 256, its leading digit is value n.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ggml_ref.quants import _blocks as block
from ggml_ref.quants._blocks import F32, U8

POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def digits(q: U8, n: int) -> F32:
    """Return digits -1, 0, 1 of bytes [..., m], [..., n * m]: first digits of all, then second."""
    leading = (q[:, None] * POWERS[:n]).astype(np.uint16) * 3 >> 8
    return block.float32(leading.reshape(len(q), -1)) - 1


def fractions(q: U8, n: int) -> U8:
    """Return bytes [..., m] of digits 0, 1, 2 [..., n * m], rounded upwards: inverse of digits."""
    weights = (3 ** np.arange(4, 4 - n, -1))[:, None]
    number: npt.NDArray[np.integer] = (q.reshape(len(q), n, -1) * weights).sum(axis=1)
    return ((number * 256 + 242) // 243).astype(np.uint8)


def ternary(x: F32, d: F32) -> npt.NDArray[np.int32]:
    """Return 0, 1 or 2 for values of -d, 0 and d; a value below half of d is 0."""
    return np.where(np.abs(x) < np.float32(0.5) * d, 1, np.where(x < 0, 0, 2)).astype(np.int32)
