"""Gradients of copies (ggml_py/ops/copy.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import constant, dense, gradient, reshape_like, source
from ggml_py.ops import acc, cont, neg, view_4d
from ggml_py.tensor import Tensor

constant("CPY", 1)  # previous values of the destination


@gradient("DUP")
@gradient("ACC")
def dup_a(t: Tensor, grad: Tensor) -> Tensor:
    return grad


@gradient("CPY")
@gradient("CONT")
def cpy_a(t: Tensor, grad: Tensor) -> Tensor:
    return reshape_like(grad, source(t, 0))


@gradient("SET")
def set_a(t: Tensor, grad: Tensor) -> Tensor:
    grad = dense(grad)
    return acc(grad, neg(cont(_window(t, grad))), *t.params[:4])


@gradient("SET", 1)
@gradient("ACC", 1)
def window(t: Tensor, grad: Tensor) -> Tensor:
    return reshape_like(cont(_window(t, dense(grad))), source(t, 1))


def _window(t: Tensor, grad: Tensor) -> Tensor:
    """Return the part of grad that source 1 was written to; t.params are strides and offset."""
    return view_4d(grad, *source(t, 1).ne, *t.params[:4])
