"""Unary functions, applied to each element of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor


def _function(name: str, doc: str) -> Callable[[Tensor], Tensor]:
    def build(a: Tensor) -> Tensor:
        return node(name, a.type, a.ne, a)

    build.__name__, build.__doc__ = name.lower(), doc
    return op(name, inplace=True)(build)


sqr = _function("SQR", "a squared (ggml.c:ggml_sqr).")
sqrt = _function("SQRT", "Square root (ggml.c:ggml_sqrt).")
log = _function("LOG", "Natural logarithm (ggml.c:ggml_log).")
sin = _function("SIN", "Sine (ggml.c:ggml_sin).")
cos = _function("COS", "Cosine (ggml.c:ggml_cos).")


def _unary(name: str, kind: int, doc: str) -> Callable[[Tensor], Tensor]:
    """Declare a unary function.

    `kind` is ggml's number (ggml.h:enum ggml_unary_op), stored in the first parameter word.
    """

    def build(a: Tensor) -> Tensor:
        require(a.has_contiguous_rows(), f"{name.lower()}: rows must be dense", a)
        return node(name, a.type, a.ne, a, params=(kind,))

    build.__name__, build.__doc__ = name.lower(), doc
    return op(name, "kind:i", inplace=True)(build)


abs = _unary("ABS", 0, "|a|")
sgn = _unary("SGN", 1, "-1, 0 or 1")
neg = _unary("NEG", 2, "-a")
step = _unary("STEP", 3, "1 if a > 0, else 0")
tanh = _unary("TANH", 4, "Hyperbolic tangent")
elu = _unary("ELU", 5, "a if a > 0, else exp(a) - 1")
relu = _unary("RELU", 6, "max(a, 0)")
sigmoid = _unary("SIGMOID", 7, "1 / (1 + exp(-a))")
gelu = _unary("GELU", 8, "Gaussian error linear unit, tanh form")
gelu_quick = _unary("GELU_QUICK", 9, "a * sigmoid(1.702 a)")
silu = _unary("SILU", 10, "a * sigmoid(a)")
hardswish = _unary("HARDSWISH", 11, "a * clamp((a + 3) / 6, 0, 1)")
hardsigmoid = _unary("HARDSIGMOID", 12, "clamp((a + 3) / 6, 0, 1)")
exp = _unary("EXP", 13, "e to the power of a")
expm1 = _unary("EXPM1", 14, "e to the power of a, minus 1")
softplus = _unary("SOFTPLUS", 15, "log(1 + exp(a)); a itself above 20")
gelu_erf = _unary("GELU_ERF", 16, "Gaussian error linear unit, erf form")
floor = _unary("FLOOR", 18, "Largest integer not above a")
ceil = _unary("CEIL", 19, "Smallest integer not below a")
round = _unary("ROUND", 20, "Nearest integer, halves away from zero")
trunc = _unary("TRUNC", 21, "Integer part")


@op("LEAKY_RELU", "slope:f", inplace=True)
def leaky_relu(a: Tensor, slope: float, inplace: bool = False) -> Tensor:
    """a if a > 0, else slope * a (ggml.c:ggml_leaky_relu)."""
    if inplace:
        return view_result("LEAKY_RELU", a, a, params=(slope,))
    return node("LEAKY_RELU", a.type, a.ne, a, params=(slope,))


@op("XIELU", "kind:i alpha_n:f alpha_p:f beta:f eps:f", inplace=True)
def xielu(a: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """softplus(alpha_p) a^2 + beta a if a > 0, else
    (beta + softplus(alpha_n)) (expm1(min(a, eps)) - a) + beta a (ggml.c:ggml_xielu).
    """
    require(a.has_contiguous_rows(), "xielu: rows must be dense", a)
    slope = float(np.float32(beta) + np.float32(_softplus(alpha_n)))
    params = (17, slope, _softplus(alpha_p), beta, eps)
    return node("XIELU", a.type, a.ne, a, params=params)


def _softplus(x: float) -> float:
    """Compute softplus in float32 steps like the C code."""
    return x if x > 20 else float(np.float32(math.log(np.float32(1) + np.float32(math.exp(x)))))
