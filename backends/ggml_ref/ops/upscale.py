"""Reference of ggml_py/ops/upscale.py: a resampling matrix along each dimension."""

from __future__ import annotations

import numpy as np

from ggml_py.ops.upscale import ALIGN_CORNERS, ANTIALIAS
from ggml_py.tensor import Tensor
from ggml_ref.functions import maximum, total
from ggml_ref.table import table
from ggml_ref.values import Values

F = np.float32  # positions use ggml's precision: rounding matters at the edge between two pixels
CUBIC = -0.75


def cubic(x: Values) -> Values:
    """Return the weight of a pixel x away (Keys, a = -0.75)."""
    x = abs(x)
    near = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
    far = ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def triangle(x: Values) -> Values:
    return maximum(1 - abs(x), 0)


def nearest(n_out: int, n_in: int, scale: np.float32) -> Values:
    """Return the matrix [n_out, n_in] that takes the nearest pixel."""
    chosen: Values = np.eye(n_in)[(np.arange(n_out, dtype=F) / scale).astype(int)]
    return chosen


def matrix(n_out: int, n_in: int, mode: int) -> Values:
    """Return the weights of the input pixels in each output pixel, [n_out, n_in]."""
    scale, half = F(n_out) / F(n_in), F(0.5)
    if mode & ALIGN_CORNERS:
        half = F(0)
        scale = F(n_out - 1) / F(n_in - 1) if n_out > 1 and n_in > 1 else scale
    kind = mode & 0xFF
    if kind == 0:
        return nearest(n_out, n_in, scale)
    x = (np.arange(n_out, dtype=F) + half) / scale - half
    if mode & ANTIALIAS:
        support = np.maximum(F(1), F(1) / scale)
        weights = triangle((np.arange(n_in) - x[:, None].astype(float)) / support)
        return weights / total(weights)
    reach = 3
    pixels = np.arange(-reach, n_in + reach)
    weights = (cubic if kind == 2 else triangle)(pixels - x[:, None].astype(float))
    weights[:, reach] += weights[:, :reach].sum(-1)  # replicate the edge pixel
    weights[:, -reach - 1] += weights[:, -reach:].sum(-1)
    return weights[:, reach:-reach]


@table.op("UPSCALE")
def upscale(node: Tensor, a: Values) -> Values:
    n3, n2, n1, n0 = a.shape
    mode, (m0, m1, m2, m3) = node.param("mode"), node.ne
    for axis, n, m in ((0, n3, m3), (1, n2, m2)):
        a = a.take(nearest(m, n, F(m) / F(n)).argmax(-1), axis)
    return matrix(m1, n1, mode) @ a @ matrix(m0, n0, mode).T
