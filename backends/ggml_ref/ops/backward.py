"""NumPy references of the ops in ggml_py/ops/backward.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import exp, mean, sqrt, total
from ggml_ref.indices import check_indices
from ggml_ref.table import table
from ggml_ref.values import Integers, Values


@table.op("RMS_NORM_BACK")
def rms_norm_back(node: Tensor, grad: Values, x: Values) -> Values:
    m = mean(x * x) + float(node.param("eps"))
    return (grad - x * mean(x * grad) / m) / sqrt(m)


@table.op("SILU_BACK")
def silu_back(node: Tensor, grad: Values, x: Values) -> Values:
    s = 1 / (1 + exp(-x))
    return grad * s * (1 + x * (1 - s))


@table.op("SOFT_MAX_BACK")
def soft_max_back(node: Tensor, grad: Values, y: Values) -> Values:
    return float(node.param("scale")) * y * (grad - total(y * grad))


@table.op("GET_ROWS_BACK")
def get_rows_back(node: Tensor, grad: Values, ids: Integers) -> Values:
    out = np.zeros(node.ne[1::-1])
    np.add.at(out, check_indices(node, ids.reshape(-1), node.ne[1]), grad[0, 0])
    return out


@table.op("REPEAT_BACK")
def repeat_back(node: Tensor, grad: Values) -> Values:
    n3, n2, n1, n0 = node.ne[::-1]
    m3, m2, m1, m0 = (g // n for g, n in zip(grad.shape, node.ne[::-1], strict=True))
    tiles = grad.reshape(m3, n3, m2, n2, m1, n1, m0, n0)
    return total(tiles, (0, 2, 4, 6))
