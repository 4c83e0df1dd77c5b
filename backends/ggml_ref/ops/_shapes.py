"""ggml's two ways to fit a smaller tensor to a larger one."""

from __future__ import annotations

import numpy as np

from ggml_ref.values import Values


def tile(x: Values, shape: tuple[int, ...]) -> Values:
    """Repeat x as a whole to `shape`, index modulo: arithmetic, masks, REPEAT."""
    return np.tile(x, [n // m if m else 1 for n, m in zip(shape, x.shape, strict=True)])


def stretch(x: Values, axis: int, n: int) -> Values:
    """Repeat each slice of x until `axis` has n, index divided: heads in MUL_MAT and attention."""
    return x if x.shape[axis] == n else np.repeat(x, n // x.shape[axis], axis)
