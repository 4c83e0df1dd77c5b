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
    """Index of the largest element of each row (ggml.c:ggml_argmax). [n, m] -> I32 [m]"""
    require(a.ne[2] == 1 and a.ne[3] == 1, "argmax: a must be a matrix", a)
    return node("ARGMAX", I32, (a.ne[1],), a)


@op("DSV4_HC_PRE", "scale:f gated:i")
def dsv4_hc_pre(x: Tensor, weights: Tensor) -> Tensor:
    """Weighted sum of the streams of each token (ggml.c:ggml_dsv4_hc_pre).

    x [n, n_streams, T], weights [n_streams, T] -> F32 [n, T]
    """
    require(x.type is F32 and weights.type is F32, "dsv4_hc_pre: both must be f32", x, weights)
    fits = weights.ne == (*x.ne[1:3], 1, 1) and x.ne[3] == 1 and x.ne[1] > 0
    require(fits, "dsv4_hc_pre: x must be [n, streams, T], weights [streams, T]", x, weights)
    return node("DSV4_HC_PRE", F32, (x.ne[0], x.ne[2]), x, weights, params=(1.0, 0))


def dsv4_hc_pre_gated(x: Tensor, gate: Tensor, scale: float) -> Tensor:
    """scale times the sum of each token's streams, each element gated by sigmoid(gate)
    (ggml.c:ggml_dsv4_hc_pre_gated). x, gate [n, n_streams, T] -> F32 [n, T]
    """
    require(x.type is F32 and gate.type is F32, "dsv4_hc_pre: both must be f32", x, gate)
    fits = x.same_shape(gate) and x.ne[3] == 1 and x.ne[1] > 0
    require(fits, "dsv4_hc_pre: x and gate must both be [n, streams, T]", x, gate)
    return node("DSV4_HC_PRE", F32, (x.ne[0], x.ne[2]), x, gate, params=(scale, 1))
