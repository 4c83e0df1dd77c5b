"""NumPy references of the ops in ggml_py/ops/mask.py."""

from __future__ import annotations

import numpy as np

from ggml_py.ops.mask import TRIANGLE
from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values

KEEP = {
    TRIANGLE["upper_diag"]: np.greater_equal,
    TRIANGLE["upper"]: np.greater,
    TRIANGLE["lower_diag"]: np.less_equal,
    TRIANGLE["lower"]: np.less,
}


@table.op("TRI")
def tri(node: Tensor, a: Values) -> Values:
    row, column = np.indices(a.shape[-2:])
    return np.where(KEEP[node.param("kind")](column, row), a, 0)


@table.op("FILL")
def fill(node: Tensor, a: Values) -> Values:
    return np.full(a.shape, node.param("value"))


@table.op("DIAG_MASK_INF")
def diag_mask_inf(node: Tensor, a: Values) -> Values:
    row, column = np.indices(a.shape[-2:])
    return np.where(column > node.param("n_past") + row, -np.inf, a)


@table.op("DIAG_MASK_ZERO")
def diag_mask_zero(node: Tensor, a: Values) -> Values:
    row, column = np.indices(a.shape[-2:])
    return np.where(column > node.param("n_past") + row, 0, a)
