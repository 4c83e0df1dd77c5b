"""Gradients of gradient ops (ggml_py/ops/backward.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import repeat
from ggml_py.tensor import Tensor


@gradient("REPEAT_BACK")
def repeat_back(t: Tensor, grad: Tensor) -> Tensor:
    return repeat(grad, source(t, 0))
