"""Gradients of ggml_py/ops/glu.py for gate and value in separate tensors."""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, source
from ggml_py.ops import mul, silu, silu_back
from ggml_py.ops.registry import require
from ggml_py.tensor import Tensor


@gradient("SWIGLU")
def swiglu_gate(t: Tensor, grad: Tensor) -> Tensor:
    halves = t.src[1] is None
    require(not halves, "the gradient of swiglu: gate and value must be two tensors", t)
    return silu_back(mul(grad, source(t, 1)), source(t, 0))


@gradient("SWIGLU", 1)
def swiglu_value(t: Tensor, grad: Tensor) -> Tensor:
    return mul(silu(source(t, 0)), grad)
