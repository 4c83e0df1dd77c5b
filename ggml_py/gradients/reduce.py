"""Gradients of reductions (ggml_py/ops/reduce.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import repeat, scale
from ggml_py.tensor import Tensor


@gradient("SUM")
@gradient("SUM_ROWS")
def sum_a(t: Tensor, grad: Tensor) -> Tensor:
    return repeat(grad, source(t, 0))


@gradient("MEAN")
def mean(t: Tensor, grad: Tensor) -> Tensor:
    a = source(t, 0)
    return repeat(scale(grad, 1 / a.ne[0]), a)
