"""Ordering the elements of rows."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.ops.shape import view_4d
from ggml_py.tensor import Tensor
from ggml_py.types import I32

ORDER = {"asc": 0, "desc": 1}


@op("ARGSORT", "order:i")
def argsort(a: Tensor, order: str) -> Tensor:
    """Indices that sort each row, `order` asc or desc; ties in any order (ggml.c:ggml_argsort). ->
    I32 like a
    """
    require(order in ORDER, f"argsort: order must be asc or desc, got {order!r}", a)
    return node("ARGSORT", I32, a.ne, a, params=(ORDER[order],))


def argsort_top_k(a: Tensor, k: int) -> Tensor:
    """Indices of the k largest of each row, largest first (ggml.c:ggml_argsort_top_k). -> I32 view
    [k, ...]
    """
    require(
        0 <= k <= a.ne[0], f"argsort_top_k: k must be within the row length {a.ne[0]}, got {k}", a
    )
    t = argsort(a, "desc")
    return view_4d(t, k, *t.ne[1:], *t.nb[1:], 0)


@op("TOP_K")
def top_k(a: Tensor, k: int) -> Tensor:
    """Indices of the k largest of each row, in no order (ggml.c:ggml_top_k). -> I32 [k, ...]"""
    require(0 < k <= a.ne[0], f"top_k: k must be within the row length {a.ne[0]}, got {k}", a)
    return node("TOP_K", I32, (k, *a.ne[1:]), a)
