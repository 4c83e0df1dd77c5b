"""References of ggml_py/ops/training.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops._shapes import stretch
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("OUT_PROD")
def out_prod(node: Tensor, a: Values, b: Values) -> Values:
    return b.swapaxes(-1, -2) @ stretch(stretch(a, 0, b.shape[0]), 1, b.shape[1])


@table.op("ADD1")
def add1(node: Tensor, a: Values, b: Values) -> Values:
    return a + b.ravel()


@table.op("COUNT_EQUAL")
def count_equal(node: Tensor, a: Values, b: Values) -> Values:
    return np.count_nonzero(a == b, keepdims=True)
