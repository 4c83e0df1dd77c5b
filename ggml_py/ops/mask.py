"""Ops for triangular masks and constants."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32

TRIANGLE = {"upper_diag": 0, "upper": 1, "lower_diag": 2, "lower": 3}


@op("TRI", "kind:i")
def tri(a: Tensor, kind: str) -> Tensor:
    """One triangle of each square matrix, zero elsewhere (ggml.c:ggml_tri). kind: upper_diag,
    upper, lower_diag, lower
    """
    require(kind in TRIANGLE, f"tri: kind must be one of {', '.join(TRIANGLE)}, got {kind!r}", a)
    require(a.type is F32 and a.is_contiguous(), "tri: a must be contiguous f32", a)
    require(a.ne[0] == a.ne[1], "tri: a must be square", a)
    return node("TRI", a.type, a.ne, a, params=(TRIANGLE[kind],))


@op("FILL", "value:f", inplace=True)
def fill(a: Tensor, value: float, inplace: bool = False) -> Tensor:
    """A tensor like a, every element `value` (ggml.c:ggml_fill)."""
    require(a.type in (F32, F16) and a.is_contiguous(), "fill: a must be contiguous f32 or f16", a)
    return (
        view_result("FILL", a, a, params=(value,))
        if inplace
        else node("FILL", a.type, a.ne, a, params=(value,))
    )


@op("DIAG_MASK_INF", "n_past:i", inplace=True)
def diag_mask_inf(a: Tensor, n_past: int) -> Tensor:
    """a with -inf where column > n_past + row (ggml.c:ggml_diag_mask_inf)."""
    return node("DIAG_MASK_INF", a.type, a.ne, a, params=(n_past,))


@op("DIAG_MASK_ZERO", "n_past:i", inplace=True)
def diag_mask_zero(a: Tensor, n_past: int) -> Tensor:
    """a with 0 where column > n_past + row (ggml.c:ggml_diag_mask_zero)."""
    return node("DIAG_MASK_ZERO", a.type, a.ne, a, params=(n_past,))
