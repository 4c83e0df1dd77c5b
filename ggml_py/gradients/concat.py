"""Gradients of concatenation (ggml_py/ops/concat.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import repeat_back
from ggml_py.tensor import Tensor


@gradient("REPEAT")
def repeat_a(t: Tensor, grad: Tensor) -> Tensor:
    return repeat_back(grad, source(t, 0))
