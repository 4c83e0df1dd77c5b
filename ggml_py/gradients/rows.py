"""Gradients of row selection (ggml_py/ops/rows.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import get_rows_back
from ggml_py.tensor import Tensor


@gradient("GET_ROWS")
def get_rows(t: Tensor, grad: Tensor) -> Tensor:
    return get_rows_back(grad, source(t, 1), source(t, 0))
