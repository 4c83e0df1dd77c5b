"""Hyper-connections of DeepSeek-V4: a layer reads from and writes to several residual streams."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32

STREAMS = 4
MIXES = (2 + STREAMS) * STREAMS  # for each token: read weights, write weights, the mixing matrix


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


@op("DSV4_HC_COMB", "eps:f n_iter:i")
def dsv4_hc_comb(mixes: Tensor, scale: Tensor, base: Tensor, eps: float, n_iter: int) -> Tensor:
    """The matrix that mixes a token's streams, its rows and columns brought to sums of one by
    n_iter Sinkhorn steps (ggml.c:ggml_dsv4_hc_comb).

    mixes [24, T], scale [>= 3] (the third is used), base [24] (from the ninth on) -> [4 (to), 4
    (from), T]
    """
    all_f32 = mixes.type is F32 and scale.type is F32 and base.type is F32
    require(all_f32, "dsv4_hc_comb: all must be f32", mixes, scale, base)
    require(n_iter > 0, f"dsv4_hc_comb: n_iter must be positive, got {n_iter}", mixes)
    require(
        mixes.ne == (MIXES, mixes.ne[1], 1, 1), f"dsv4_hc_comb: mixes must be [{MIXES}, T]", mixes
    )
    require(
        scale.ne[0] >= 3 and scale.n_elements == scale.ne[0] and base.ne == (MIXES, 1, 1, 1),
        f"dsv4_hc_comb: scale must be [3], base [{MIXES}]",
        scale,
        base,
    )
    ne = (STREAMS, STREAMS, mixes.ne[1])
    return node("DSV4_HC_COMB", F32, ne, mixes, scale, base, params=(eps, n_iter))


@op("DSV4_HC_POST")
def dsv4_hc_post(x: Tensor, residual: Tensor, post: Tensor, comb: Tensor | None) -> Tensor:
    """The streams after a layer: y[:, i, t] = x[:, t] * post[i, t] + sum_j residual[:, j, t] *
    comb[i, j, t] (ggml.c:ggml_dsv4_hc_post). Without comb each stream keeps its own residual.

    x [n, T], residual [n, streams, T], post [streams, T], comb [streams, streams, T] -> as residual
    """
    n, n_streams, n_tokens, _ = residual.ne
    given = [t for t in (x, residual, post, comb) if t is not None]
    require(all(t.type is F32 for t in given), "dsv4_hc_post: all must be f32", *given)
    fits = (
        residual.ne[3] == 1
        and n_streams > 0
        and x.ne == (n, n_tokens, 1, 1)
        and post.ne == (n_streams, n_tokens, 1, 1)
    )
    require(
        fits,
        "dsv4_hc_post: residual must be [n, streams, T], x [n, T], post [streams, T]",
        residual,
        x,
        post,
    )
    require(
        comb is None or comb.ne == (n_streams, n_streams, n_tokens, 1),
        "dsv4_hc_post: comb must be [streams, streams, T]",
        residual,
        comb,
    )
    src = (x, residual, post) if comb is None else (x, residual, post, comb)
    return node("DSV4_HC_POST", F32, (n, n_streams, n_tokens), *src)
