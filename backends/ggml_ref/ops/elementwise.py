"""References of ggml_py/ops/elementwise.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.ops._shapes import tile
from ggml_ref.table import table
from ggml_ref.values import Values


@table.op("ADD")
def add(node: Tensor, a: Values, b: Values) -> Values:
    return a + tile(b, a.shape)


@table.op("SUB")
def sub(node: Tensor, a: Values, b: Values) -> Values:
    return a - tile(b, a.shape)


@table.op("MUL")
def mul(node: Tensor, a: Values, b: Values) -> Values:
    return a * tile(b, a.shape)


@table.op("DIV")
def div(node: Tensor, a: Values, b: Values) -> Values:
    return a / tile(b, a.shape)


@table.op("ADD_ID")
def add_id(node: Tensor, a: Values, b: Values, ids: Values) -> Values:
    return a + b[0, 0][ids[0, 0]]


@table.op("SCALE")
def scale(node: Tensor, a: Values) -> Values:
    return a * node.param("scale") + node.param("bias")


@table.op("CLAMP")
def clamp(node: Tensor, a: Values) -> Values:
    return np.minimum(np.maximum(a, node.param("min")), node.param("max"))


def sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))


def silu(x: Values) -> Values:
    return x * sigmoid(x)


def relu(x: Values) -> Values:
    return np.maximum(x, 0)


def gelu(x: Values) -> Values:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def gelu_quick(x: Values) -> Values:
    return x * sigmoid(1.702 * x)


def gelu_erf(x: Values) -> Values:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def softplus(x: Values) -> Values:
    return np.where(x > 20, x, np.log1p(np.exp(x)))


def hardsigmoid(x: Values) -> Values:
    return np.clip((x + 3) / 6, 0, 1)


def round_away(x: Values) -> Values:
    whole = np.floor(np.abs(x))
    return np.copysign(whole + (np.abs(x) - whole >= 0.5), x)


def _unary(name: str, f: Callable[[Values], Values]) -> None:
    table.op(name)(lambda node, x: f(x))


_unary("SQR", np.square)
_unary("SQRT", np.sqrt)
_unary("LOG", np.log)
_unary("SIN", np.sin)
_unary("COS", np.cos)
_unary("ABS", np.abs)
_unary("SGN", np.sign)
_unary("NEG", np.negative)
_unary("STEP", lambda x: x > 0)
_unary("TANH", np.tanh)
_unary("ELU", lambda x: np.where(x > 0, x, np.expm1(x)))
_unary("RELU", relu)
_unary("SIGMOID", sigmoid)
_unary("GELU", gelu)
_unary("GELU_QUICK", gelu_quick)
_unary("SILU", silu)
_unary("HARDSWISH", lambda x: x * hardsigmoid(x))
_unary("HARDSIGMOID", hardsigmoid)
_unary("EXP", np.exp)
_unary("EXPM1", np.expm1)
_unary("SOFTPLUS", softplus)
_unary("GELU_ERF", gelu_erf)
_unary("FLOOR", np.floor)
_unary("CEIL", np.ceil)
_unary("ROUND", round_away)
_unary("TRUNC", np.trunc)


def gate_and_value(node: Tensor, a: Values, b: Values | None) -> tuple[Values, Values]:
    """Both tensors, or the halves of a's rows (the second half gates if `swapped`)."""
    if b is not None:
        return a, b
    n = node.ne[0]
    first, second = a[..., :n], a[..., n : 2 * n]
    return (second, first) if node.param("swapped") else (first, second)


def _gated(name: str, f: Callable[[Values], Values]) -> None:
    def function(node: Tensor, a: Values, b: Values | None) -> Values:
        gate, value = gate_and_value(node, a, b)
        return f(gate) * value

    table.op(name)(function)


_gated("REGLU", relu)
_gated("GEGLU", gelu)
_gated("SWIGLU", silu)
_gated("GEGLU_ERF", gelu_erf)
_gated("GEGLU_QUICK", gelu_quick)


@table.op("SWIGLU_OAI")
def swiglu_oai(node: Tensor, a: Values, b: Values | None) -> Values:
    limit = node.param("limit")
    gate, value = gate_and_value(node, a, b)
    gate = np.minimum(gate, limit)
    return gate * sigmoid(node.param("alpha") * gate) * (np.clip(value, -limit, limit) + 1)
