"""References of ggml_py/ops/backward.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("RMS_NORM_BACK")
def rms_norm_back(node: Tensor, grad: Values, x: Values) -> Values:
    m = (x * x).mean(axis=-1, keepdims=True) + node.param("eps")
    return (grad - x * (x * grad).mean(axis=-1, keepdims=True) / m) / np.sqrt(m)


@table.op("SILU_BACK")
def silu_back(node: Tensor, grad: Values, x: Values) -> Values:
    s = 1 / (1 + np.exp(-x))
    return grad * s * (1 + x * (1 - s))


@table.op("SOFT_MAX_BACK")
def soft_max_back(node: Tensor, grad: Values, y: Values) -> Values:
    return node.param("scale") * y * (grad - (y * grad).sum(axis=-1, keepdims=True))


@table.op("GET_ROWS_BACK")
def get_rows_back(node: Tensor, grad: Values, ids: Values) -> Values:
    out = np.zeros(node.ne[1::-1])
    np.add.at(out, ids.reshape(-1), grad[0, 0])
    return out


@table.op("REPEAT_BACK")
def repeat_back(node: Tensor, grad: Values) -> Values:
    n3, n2, n1, n0 = node.ne[::-1]
    m3, m2, m1, m0 = (g // n for g, n in zip(grad.shape, node.ne[::-1], strict=True))
    return grad.reshape(m3, n3, m2, n2, m1, n1, m0, n0).sum(axis=(0, 2, 4, 6))
