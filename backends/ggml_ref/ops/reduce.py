"""NumPy references of the ops in ggml_py/ops/reduce.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref import functions
from ggml_ref.table import table
from ggml_ref.values import Integers, Values


@table.op("SUM_ROWS")
def sum_rows(node: Tensor, a: Values) -> Values:
    return functions.total(a)


@table.op("SUM")
def sum(node: Tensor, a: Values) -> Values:
    return functions.total(a, None)


@table.op("MEAN")
def mean(node: Tensor, a: Values) -> Values:
    return functions.mean(a)


@table.op("CUMSUM")
def cumsum(node: Tensor, a: Values) -> Values:
    sums: Values = np.cumsum(a, axis=3 - node.param("axis"))
    return sums


@table.op("ARGMAX")
def argmax(node: Tensor, a: Values) -> Integers:
    found: Integers = a.shape[-1] - 1 - np.argmax(a[..., ::-1], axis=-1)  # the last of equal ones
    return found
