"""NumPy references of the ops in ggml_py/ops/conv_transpose.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import tensordot
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("CONV_TRANSPOSE_1D")
def conv_transpose_1d(node: Tensor, a: Values, b: Values) -> Values:
    s, out = node.param("s0"), np.zeros(node.ne[1::-1])
    for i, x in enumerate(b[0, 0].T):
        out[:, i * s : i * s + a.shape[-1]] += tensordot(x, a[0], 1)
    return out


@table.op("CONV_TRANSPOSE_2D")
def conv_transpose_2d(node: Tensor, a: Values, b: Values) -> Values:
    s, (n1, n0) = node.param("stride"), b.shape[2:]
    out = np.zeros(node.ne[::-1])
    for y, x in np.ndindex(a.shape[2:]):
        part = np.moveaxis(tensordot(a[:, :, y, x], b, (0, 1)), 0, 1)
        out[:, :, y : y + n1 * s : s, x : x + n0 * s : s][:, :, :n1, :n0] += part
    return out


@table.op("COL2IM_1D")
def col2im_1d(node: Tensor, a: Values) -> Values:
    s, p, oc = node.param("s0"), node.param("p0"), node.param("oc")
    columns = a[0, 0].reshape(a.shape[2], oc, -1)
    out = np.zeros((oc, node.ne[0] + 2 * p))
    for i, column in enumerate(columns):
        out[:, i * s : i * s + column.shape[1]] += column
    return out[:, p : p + node.ne[0]]
