"""NumPy references of the ops in ggml_py/ops/sort.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.table import table
from ggml_ref.values import Integers, Values


@table.op("ARGSORT")
def argsort(node: Tensor, a: Values) -> Integers:
    return np.argsort(-a if node.param("order") else a, axis=-1, kind="stable")


@table.op("TOP_K")
def top_k(node: Tensor, a: Values) -> Integers:
    return np.argsort(-a, axis=-1, kind="stable")[..., : node.ne[0]]
