"""Arithmetic: two tensors with broadcast, a tensor and numbers."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, refuse, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import I32


def _binary(name: str, a: Tensor, b: Tensor, inplace: bool) -> Tensor:
    if not b.can_repeat_to(a):
        refuse(f"{name.lower()}: b must repeat to a's shape", a, b)
    return view_result(name, a, a, b) if inplace else node(name, a.type, a.ne, a, b)


@op("ADD", inplace=True)
def add(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a + b; b is repeated to a's shape (ggml.c:ggml_add)."""
    return _binary("ADD", a, b, inplace)


@op("SUB", inplace=True)
def sub(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a - b; b is repeated to a's shape (ggml.c:ggml_sub)."""
    return _binary("SUB", a, b, inplace)


@op("MUL", inplace=True)
def mul(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a * b; b is repeated to a's shape (ggml.c:ggml_mul)."""
    return _binary("MUL", a, b, inplace)


@op("DIV", inplace=True)
def div(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a / b; b is repeated to a's shape (ggml.c:ggml_div)."""
    return _binary("DIV", a, b, inplace)


@op("ADD_ID", inplace=True)
def add_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """a[:, e, t] + b[:, ids[e, t]] (ggml.c:ggml_add_id). a [n, n_used, T], b [n, n_expert], ids I32
    [n_used, T]
    """
    require(a.ne[0] == b.ne[0], "add_id: a and b must have rows of equal length", a, b)
    require(a.ne[1:3] == ids.ne[:2], "add_id: ids must be [a.ne1, a.ne2]", a, ids)
    require(ids.type is I32, "add_id: ids must be i32", ids)
    return node("ADD_ID", a.type, a.ne, a, b, ids)


@op("SCALE", "scale:f bias:f", inplace=True)
def scale(a: Tensor, s: float, bias: float = 0.0, inplace: bool = False) -> Tensor:
    """s * a + bias (ggml.c:ggml_scale_bias)."""
    require(a.is_contiguous_n(1), "scale: rows must be dense", a)
    if inplace:
        return view_result("SCALE", a, a, params=(s, bias))
    return node("SCALE", a.type, a.ne, a, params=(s, bias))


@op("CLAMP", "min:f max:f", inplace=True)
def clamp(a: Tensor, min: float, max: float) -> Tensor:
    """a limited to [min, max] (ggml.c:ggml_clamp)."""
    return node("CLAMP", a.type, a.ne, a, params=(min, max))


@op("ADD1", inplace=True)
def add1(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a + b[0] (ggml.c:ggml_add1)."""
    require(b.n_elements == 1, "add1: b must be a scalar", b)
    dense = a.nb[0] == a.type.type_size and a.nb[2:] == (a.nb[1] * a.ne[1], a.nb[2] * a.ne[2])
    require(dense, "add1: a must be dense except at the ends of rows", a)
    return view_result("ADD1", a, a, b) if inplace else node("ADD1", a.type, a.ne, a, b)
