"""Gradients of training ops (ggml_py/ops/training.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import cross_entropy_loss_back
from ggml_py.tensor import Tensor


@gradient("CROSS_ENTROPY_LOSS")
def cross_entropy_loss(t: Tensor, grad: Tensor) -> Tensor:
    return cross_entropy_loss_back(grad, source(t, 0), source(t, 1))
