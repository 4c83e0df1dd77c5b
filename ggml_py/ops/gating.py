"""A unary function of one tensor times another (ik_llama.cpp)."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_of
from ggml_py.tensor import Tensor
from ggml_py.types import F32

KINDS = {"relu": 6, "sigmoid": 7, "gelu": 8, "silu": 10}  # ggml.h:enum ggml_unary_op


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
        same or a.ne == (1, *b.ne[1:]), "fused_mul_unary: a must be as b or one for each row", a, b
    )
    allowed = ("gelu", "relu", "silu") if same else ("silu", "sigmoid")
    require(kind in allowed, f"fused_mul_unary: kind must be one of {allowed}, got {kind!r}", a, b)
    require(limit >= 0, f"fused_mul_unary: limit must not be negative, got {limit}", a, b)
    require(same or not inplace, "fused_mul_unary: in place, a must be as b", a, b)
    params = (KINDS[kind], limit)
    if inplace:
        return view_of("FUSED_MUL_UNARY", a, a, b, params=params)
    return node("FUSED_MUL_UNARY", F32, b.ne, a, b, params=params)
