"""Gradients of unary functions (ggml_py/ops/unary.py)."""

from __future__ import annotations

from ggml_py.gradients._declare import constant, gradient, source
from ggml_py.ops import cos, div, exp, mul, neg, scale, sgn, sigmoid, silu_back, sin, step
from ggml_py.tensor import Tensor

constant("SGN")
constant("STEP")


@gradient("SQR")
def sqr(t: Tensor, grad: Tensor) -> Tensor:
    return scale(mul(source(t, 0), grad), 2.0)


@gradient("SQRT")
def sqrt(t: Tensor, grad: Tensor) -> Tensor:
    return scale(div(grad, t), 0.5)


@gradient("LOG")
def log(t: Tensor, grad: Tensor) -> Tensor:
    return div(grad, source(t, 0))


@gradient("SIN")
def sine(t: Tensor, grad: Tensor) -> Tensor:
    return mul(grad, cos(source(t, 0)))


@gradient("COS")
def cosine(t: Tensor, grad: Tensor) -> Tensor:
    return neg(mul(grad, sin(source(t, 0))))


@gradient("ABS")
def absolute(t: Tensor, grad: Tensor) -> Tensor:
    return mul(sgn(source(t, 0)), grad)


@gradient("NEG")
def negative(t: Tensor, grad: Tensor) -> Tensor:
    return neg(grad)


@gradient("RELU")
def relu(t: Tensor, grad: Tensor) -> Tensor:
    return mul(step(source(t, 0)), grad)


@gradient("SILU")
def silu(t: Tensor, grad: Tensor) -> Tensor:
    return silu_back(grad, source(t, 0))


@gradient("EXP")
def exponential(t: Tensor, grad: Tensor) -> Tensor:
    return mul(t, grad)


@gradient("EXPM1")
def expm1(t: Tensor, grad: Tensor) -> Tensor:
    return mul(grad, exp(source(t, 0)))


@gradient("SOFTPLUS")
def softplus(t: Tensor, grad: Tensor) -> Tensor:
    return mul(grad, sigmoid(source(t, 0)))
