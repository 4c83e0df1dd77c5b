"""NumPy references of the ops in ggml_py/ops/unary.py."""

from __future__ import annotations

import math

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import Function, clip, exp, expm1, floor, maximum, minimum, tanh
from ggml_ref.table import table
from ggml_ref.values import Values


def sigmoid(x: Values) -> Values:
    return 1 / (1 + exp(-x))


def silu(x: Values) -> Values:
    return x * sigmoid(x)


def relu(x: Values) -> Values:
    return maximum(x, 0)


def gelu(x: Values) -> Values:
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def gelu_quick(x: Values) -> Values:
    return x * sigmoid(1.702 * x)


def gelu_erf(x: Values) -> Values:
    erf: Function = np.vectorize(math.erf, otypes=[np.float64])
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def softplus(x: Values) -> Values:
    return np.where(x > 20, x, np.log1p(exp(x)))


def hardsigmoid(x: Values) -> Values:
    return clip((x + 3) / 6, 0, 1)


def round_away(x: Values) -> Values:
    whole = floor(abs(x))
    return np.copysign(whole + (abs(x) - whole >= 0.5), x)


def _unary(name: str, f: Function) -> None:
    table.op(name)(lambda node, x: f(x))


_unary("SQR", np.square)
_unary("SQRT", np.sqrt)
_unary("LOG", np.log)
_unary("SIN", np.sin)
_unary("COS", np.cos)
_unary("ABS", np.abs)
_unary("SGN", np.sign)
_unary("NEG", np.negative)
_unary("STEP", lambda x: np.where(x > 0, 1.0, 0.0))
_unary("TANH", np.tanh)
_unary("ELU", lambda x: np.where(x > 0, x, expm1(x)))
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


@table.op("LEAKY_RELU")
def leaky_relu(node: Tensor, a: Values) -> Values:
    return np.where(a > 0, a, node.param("slope") * a)


@table.op("XIELU")
def xielu(node: Tensor, a: Values) -> Values:
    positive = float(node.param("alpha_p")) * a * a
    negative = float(node.param("alpha_n")) * (expm1(minimum(a, node.param("eps"))) - a)
    curved: Values = np.where(a > 0, positive, negative)
    return curved + float(node.param("beta")) * a
