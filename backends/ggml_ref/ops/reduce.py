"""References of ggml_py/ops/reduce.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("SUM_ROWS")
def sum_rows(node: Tensor, a: Values) -> Values:
    return a.sum(axis=-1)


@table.op("SUM")
def sum(node: Tensor, a: Values) -> Values:
    return a.sum()


@table.op("MEAN")
def mean(node: Tensor, a: Values) -> Values:
    return a.mean(axis=-1)


@table.op("CUMSUM")
def cumsum(node: Tensor, a: Values) -> Values:
    return np.cumsum(a, axis=3 - node.param("axis"))


@table.op("ARGMAX")
def argmax(node: Tensor, a: Values) -> Values:
    return np.argmax(a, axis=-1)
