"""Gradients of ggml_py/ops/arithmetic.py. A repeated operand gets the sum over its copies; ggml has
this for ADD and MUL only. ADD1's scalar gets the sum; ggml takes the mean.
"""

from __future__ import annotations

from ggml_py.gradients._declare import gradient, reshape_like, source, sum_repeats
from ggml_py.ops import div, mul, neg, scale
from ggml_py.ops import sum as sum_of
from ggml_py.tensor import Tensor


@gradient("ADD")
@gradient("SUB")
@gradient("ADD1")
def add_a(t: Tensor, grad: Tensor) -> Tensor:
    return grad


@gradient("ADD", 1)
def add_b(t: Tensor, grad: Tensor) -> Tensor:
    return sum_repeats(grad, source(t, 1))


@gradient("SUB", 1)
def sub_b(t: Tensor, grad: Tensor) -> Tensor:
    return neg(sum_repeats(grad, source(t, 1)))


@gradient("MUL")
def mul_a(t: Tensor, grad: Tensor) -> Tensor:
    return mul(grad, source(t, 1))


@gradient("MUL", 1)
def mul_b(t: Tensor, grad: Tensor) -> Tensor:
    return sum_repeats(mul(source(t, 0), grad), source(t, 1))


@gradient("DIV")
def div_a(t: Tensor, grad: Tensor) -> Tensor:
    return div(grad, source(t, 1))


@gradient("DIV", 1)
def div_b(t: Tensor, grad: Tensor) -> Tensor:
    b = source(t, 1)
    return neg(sum_repeats(mul(grad, div(t, b)), b))


@gradient("SCALE")
def scale_a(t: Tensor, grad: Tensor) -> Tensor:
    return scale(grad, t.param("scale"))


@gradient("ADD1", 1)
def add1_b(t: Tensor, grad: Tensor) -> Tensor:
    return reshape_like(sum_of(grad), source(t, 1))
