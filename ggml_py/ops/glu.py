"""Gated linear units: a function of one tensor, the gate, times another."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F32

KINDS = {"relu": 6, "sigmoid": 7, "gelu": 8, "silu": 10}  # ggml.h:enum ggml_unary_op


def glu(name: str, kind: int, a: Tensor, b: Tensor | None, swapped: bool, *more: float) -> Tensor:
    """A gated linear unit: gate a and value b, or the halves of a's rows (ggml.c:ggml_glu).

    Rows of odd length are used without their last element.
    """
    low = name.lower()
    require(a.is_contiguous_n(1), f"{low}: rows must be dense", a)
    ne = a.ne
    if b is None:
        ne = (a.ne[0] // 2, *a.ne[1:])
    else:
        require(
            a.same_shape(b) and a.type is b.type,
            f"{low}: a and b must have the same type and shape",
            a,
            b,
        )
        require(b.is_contiguous_n(1), f"{low}: rows must be dense", b)
    return node(name, a.type, ne, a, b, params=(kind, int(swapped), *more))


def _declare_glu(
    name: str, kind: int, doc: str
) -> tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """Return the one-tensor variant (gate and value are halves of each row) and the two-tensor
    one."""

    def halves(a: Tensor, swapped: bool = False) -> Tensor:
        return glu(name, kind, a, None, swapped)

    def split(a: Tensor, b: Tensor) -> Tensor:
        return glu(name, kind, a, b, False)

    halves.__name__, halves.__doc__ = name.lower(), f"{doc} [2n, ...] -> [n, ...]"
    split.__name__, split.__doc__ = f"{name.lower()}_split", f"{doc} a gate, b value, both [n, ...]"
    return op(name, "kind:i swapped:i", inplace=True)(halves), split


reglu, reglu_split = _declare_glu("REGLU", 0, "relu(gate) * value.")
geglu, geglu_split = _declare_glu("GEGLU", 1, "gelu(gate) * value.")
swiglu, swiglu_split = _declare_glu("SWIGLU", 2, "silu(gate) * value.")
geglu_erf, geglu_erf_split = _declare_glu("GEGLU_ERF", 4, "gelu_erf(gate) * value.")
geglu_quick, geglu_quick_split = _declare_glu("GEGLU_QUICK", 5, "gelu_quick(gate) * value.")


@op("SWIGLU_OAI", "kind:i swapped:i alpha:f limit:f", inplace=True)
def swiglu_oai(a: Tensor, b: Tensor, alpha: float, limit: float) -> Tensor:
    """g * sigmoid(alpha g) * (u + 1) with g = min(a, limit), u = clamp(b, -limit, limit)
    (ggml.c:ggml_swiglu_oai).
    """
    return glu("SWIGLU_OAI", 3, a, b, False, alpha, limit)


@op("SWIGLU_CLAMP", "kind:i swapped:i 4x limit:f", inplace=True)
def swiglu_clamp(a: Tensor, b: Tensor, limit: float) -> Tensor:
    """silu(min(a, limit)) * clamp(b, -limit, limit) (ggml.c:ggml_swiglu_clamp)."""
    return glu("SWIGLU_CLAMP", 6, a, b, False, limit)


@op("FUSED_MUL_UNARY", "kind:i limit:f", inplace=True)
def fused_mul_unary(
    a: Tensor, b: Tensor, kind: str, limit: float = 0.0, inplace: bool = False
) -> Tensor:
    """kind(a) * b, kind gelu, relu or silu (ik_llama.cpp ggml.c:ggml_fused_mul_unary).

    With a [1, ...], one gate for each row of b, kind is silu or sigmoid. With a limit above zero
    the gate kind(a) is at most limit and b is clamped to -limit .. limit. -> like b, in place: a
    """
    require(a.type is F32 and b.type is F32, "fused_mul_unary: both must be f32", a, b)
    rows = a.has_contiguous_rows() and b.has_contiguous_rows()
    require(rows, "fused_mul_unary: rows must be dense", a, b)
    same = a.ne == b.ne
    require(
        same or a.ne == (1, *b.ne[1:]),
        "fused_mul_unary: a must have the shape of b, or one value per row",
        a,
        b,
    )
    allowed = ("gelu", "relu", "silu") if same else ("silu", "sigmoid")
    require(kind in allowed, f"fused_mul_unary: kind must be one of {allowed}, got {kind!r}", a, b)
    require(limit >= 0, f"fused_mul_unary: limit must not be negative, got {limit}", a, b)
    require(same or not inplace, "fused_mul_unary: in place, a must have the shape of b", a, b)
    params = (KINDS[kind], limit)
    if inplace:
        return view_result("FUSED_MUL_UNARY", a, a, b, params=params)
    return node("FUSED_MUL_UNARY", F32, b.ne, a, b, params=params)
