"""Gradients of attention ops (ggml_py/ops/attention.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient
from ggml_py.ops import soft_max_ext_back
from ggml_py.tensor import Tensor


@gradient("SOFT_MAX")
def soft_max(t: Tensor, grad: Tensor) -> Tensor:
    return soft_max_ext_back(grad, t, *t.params)
