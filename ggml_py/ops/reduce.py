"""Sums and other reductions along rows."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import MAX_DIMS, Tensor
from ggml_py.types import F32, I32


@op("SUM_ROWS")
def sum_rows(a: Tensor) -> Tensor:
    """Sum along dimension 0 (ggml.c:ggml_sum_rows). [n, m, ...] -> [1, m, ...]"""
    return node("SUM_ROWS", a.type, (1, *a.ne[1:]), a)


@op("SUM")
def sum(a: Tensor) -> Tensor:
    """Sum of all elements (ggml.c:ggml_sum). -> [1]"""
    return node("SUM", a.type, (1,), a)


@op("MEAN")
def mean(a: Tensor) -> Tensor:
    """Mean along dimension 0 (ggml.c:ggml_mean). [n, m, ...] -> F32 [1, m, ...]"""
    return node("MEAN", F32, (1, *a.ne[1:]), a)


@op("CUMSUM", "axis:i")
def cumsum(a: Tensor, axis: int = 0) -> Tensor:
    """Running sum along dimension `axis`; ggml knows dimension 0 only (ggml.c:ggml_cumsum)."""
    require(a.type is F32, "cumsum: a must be f32", a)
    require(0 <= axis < MAX_DIMS, f"cumsum: axis must be 0..3, got {axis}", a)
    return node("CUMSUM", a.type, a.ne, a, params=(axis,))


@op("ARGMAX")
def argmax(a: Tensor) -> Tensor:
    """Return the index of the largest element of each row, the last of equal ones
    (ggml.c:ggml_argmax). [n, m] -> I32 [m]"""
    require(a.ne[2] == 1 and a.ne[3] == 1, "argmax: a must be a matrix", a)
    return node("ARGMAX", I32, (a.ne[1],), a)
