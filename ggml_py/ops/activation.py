"""Activations with parameters of their own."""

from __future__ import annotations

import math

from ggml_py.ops.elementwise import glu
from ggml_py.ops.registry import node, op, require, view_of
from ggml_py.tensor import Tensor


@op("LEAKY_RELU", "slope:f", inplace=True)
def leaky_relu(a: Tensor, slope: float, inplace: bool = False) -> Tensor:
    """a where a > 0, else slope * a (ggml.c:ggml_leaky_relu)."""
    if inplace:
        return view_of("LEAKY_RELU", a, a, params=(slope,))
    return node("LEAKY_RELU", a.type, a.ne, a, params=(slope,))


@op("XIELU", "kind:i alpha_n:f alpha_p:f beta:f eps:f", inplace=True)
def xielu(a: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """softplus(alpha_p) a^2 + beta a where a > 0, else
    (beta + softplus(alpha_n)) (expm1(min(a, eps)) - a) + beta a (ggml.c:ggml_xielu).
    """
    require(a.has_contiguous_rows(), "xielu: rows must be dense", a)
    params = (17, beta + _softplus(alpha_n), _softplus(alpha_p), beta, eps)
    return node("XIELU", a.type, a.ne, a, params=params)


def _softplus(x: float) -> float:
    return x if x > 20 else math.log1p(math.exp(x))


@op("SWIGLU_CLAMP", "kind:i swapped:i 4x limit:f")
def swiglu_clamp(a: Tensor, b: Tensor, limit: float) -> Tensor:
    """silu(min(a, limit)) * clamp(b, -limit, limit) (ggml.c:ggml_swiglu_clamp)."""
    return glu("SWIGLU_CLAMP", 6, a, b, False, limit)
