"""NumPy references of the ops in ggml_py/ops/glu.py."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops.glu import KINDS
from ggml_py.tensor import Tensor
from ggml_ref.functions import clip, minimum
from ggml_ref.ops.unary import gelu, gelu_erf, gelu_quick, relu, sigmoid, silu
from ggml_ref.table import table
from ggml_ref.values import Values


def gate_and_value(node: Tensor, a: Values, b: Values | None) -> tuple[Values, Values]:
    """Return both tensors, or the halves of a's rows (the second half gates if `swapped`)."""
    if b is not None:
        return a, b
    n = node.ne[0]
    first, second = a[..., :n], a[..., n : 2 * n]
    return (second, first) if node.param("swapped") else (first, second)


def _declare_glu(name: str, f: Callable[[Values], Values]) -> None:
    def function(node: Tensor, a: Values, b: Values | None) -> Values:
        gate, value = gate_and_value(node, a, b)
        return f(gate) * value

    table.op(name)(function)


_declare_glu("REGLU", relu)
_declare_glu("GEGLU", gelu)
_declare_glu("SWIGLU", silu)
_declare_glu("GEGLU_ERF", gelu_erf)
_declare_glu("GEGLU_QUICK", gelu_quick)


@table.op("SWIGLU_OAI")
def swiglu_oai(node: Tensor, a: Values, b: Values | None) -> Values:
    limit = node.param("limit")
    gate, value = gate_and_value(node, a, b)
    gate = minimum(gate, limit)
    return gate * sigmoid(node.param("alpha") * gate) * (clip(value, -limit, limit) + 1)


@table.op("SWIGLU_CLAMP")
def swiglu_clamp(node: Tensor, a: Values, b: Values | None) -> Values:
    limit = node.param("limit")
    gate, value = gate_and_value(node, a, b)
    return silu(minimum(gate, limit)) * clip(value, -limit, limit)


FUNCTIONS = {
    KINDS["relu"]: relu,
    KINDS["sigmoid"]: sigmoid,
    KINDS["gelu"]: gelu,
    KINDS["silu"]: silu,
}


@table.op("FUSED_MUL_UNARY")
def fused_mul_unary(node: Tensor, a: Values, b: Values) -> Values:
    gate, limit = FUNCTIONS[node.param("kind")](a), node.param("limit")
    if limit > 0:
        gate, b = minimum(gate, limit), clip(b, -limit, limit)
    return gate * b
