"""Delta nets: the state of each head is a matrix; each key corrects its values."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32


def _flops(t: Tensor) -> float:
    """Return the FLOPs per token and state element: decay, two products, the update."""
    v, size = t.source(2), t.source(0).ne[0]
    return 7.0 * v.n_elements * size


@op("GATED_DELTA_NET", "n_snapshots:i", flops=_flops)
def gated_delta_net(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, n_snapshots: int = 1
) -> Tensor:
    """The gated delta rule over T tokens (ggml.c:ggml_gated_delta_net, arXiv 2412.06464; per-
    channel gate: KDA).

    q, k [S, H_k, T, B_k], v [S, H, T, B], g [1 or S, H, T, B], beta [1, H, T, B], state [S, S, H,
    B] (key index fast)
    -> [S * H, T * B + n_snapshots * S * B]: outputs [S, H, T, B], then states [S, S, H, B], newest
    first; only min(T, n_snapshots) of them are written (T = 0: one, `state` itself). Value head h
    uses key head h mod H_k. Per token: M *= exp(g); M[j] += beta * (v[j] - <M[j], k>) * k; o[j] =
    <M[j], q> / sqrt(S).
    """
    require(
        all(t.has_contiguous_rows() for t in (q, k, v)),
        "gated_delta_net: q, k, v need dense rows",
        q,
        k,
        v,
    )
    require(
        all(t.is_contiguous() for t in (g, beta, state)),
        "gated_delta_net: g, beta, state must be contiguous",
        g,
        beta,
    )
    require(
        all(t.type is F32 for t in (q, k, v, g, beta, state)),
        "gated_delta_net: all must be f32",
        q,
        k,
        v,
        g,
        beta,
    )
    size, n_head, n_tokens, n_seqs = v.ne
    require(
        q.ne == k.ne and q.ne[0] == size and q.ne[2] == n_tokens,
        "gated_delta_net: q and k must be [S, H_k, T, B_k]",
        q,
        k,
        v,
    )
    require(
        q.ne[1] > 0 and n_head % q.ne[1] == 0 and q.ne[3] > 0 and n_seqs % q.ne[3] == 0,
        "gated_delta_net: key heads and batch must divide v's",
        q,
        v,
    )
    require(
        g.ne[0] in (1, size) and g.ne[1:] == v.ne[1:],
        "gated_delta_net: g must be [1 or S, H, T, B]",
        g,
        v,
    )
    require(
        beta.ne == (1, n_head, n_tokens, n_seqs),
        "gated_delta_net: beta must be [1, H, T, B]",
        beta,
        v,
    )
    require(
        state.ne == (size, size, n_head, n_seqs),
        "gated_delta_net: state must be [S, S, H, B]",
        state,
        v,
    )
    require(
        n_snapshots >= 1, f"gated_delta_net: n_snapshots must be at least 1, got {n_snapshots}", v
    )
    ne = (size * n_head, n_tokens * n_seqs + n_snapshots * size * n_seqs)
    return node("GATED_DELTA_NET", F32, ne, q, k, v, g, beta, state, params=(n_snapshots,))


REPEAT = {"groups": 0, "tiles": 1}


@op("DELTA_NET", "repeat:i", writes=(6,), flops=_flops)
def delta_net(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    saved: Tensor | None = None,
    repeat: str = "groups",
) -> Tensor:
    """The gated delta rule over T tokens (ik_llama.cpp ggml.c:ggml_delta_net).

    q, k [S, T, H_k, B], v [S, T, H, B], g [T, 1 or S, H, B], beta [1, T, H, B] before its sigmoid,
    state [S, S * H, 1, B]: of each head a column of S values for each key index
    -> 1-d: outputs [S, H, T, B], then the states [S, S * H, B].
    Value head h uses key head h / (H / H_k) (`repeat` groups) or h % H_k (tiles). Per token, with
    c = exp(min(g, 50)): M[:, i] *= c[i]; d = sigmoid(beta) * (v - M k); o = (M q + d <k, q>) /
    sqrt(S); M = clamp(M + d k^T, -1e6, 1e6).
    saved: at least (T - 1) * S * S * H * B elements that get the states after each token but the
    last, token by token.
    """
    src: tuple[Tensor, ...] = (q, k, v, g, beta, state)
    size, n_tokens, n_head, n_seqs = v.ne
    require(repeat in REPEAT, f"delta_net: repeat must be groups or tiles, got {repeat!r}", v)
    require(all(t.type is F32 for t in src), "delta_net: all must be f32", *src)
    dense = all(t.has_contiguous_rows() for t in (q, k, v)) and state.is_contiguous()
    require(dense, "delta_net: q, k, v need dense rows, state must be contiguous", q, k, v, state)
    heads_fit = q.ne == k.ne and q.ne[2] > 0 and n_head % q.ne[2] == 0
    require(
        heads_fit and q.ne[:2] == (size, n_tokens) and q.ne[3] == n_seqs,
        "delta_net: q and k must be [S, T, H_k, B] with H_k a divisor of H",
        q,
        k,
        v,
    )
    require(
        g.ne[0] == n_tokens and g.ne[1] in (1, size) and g.ne[2:] == (n_head, n_seqs),
        "delta_net: g must be [T, 1 or S, H, B]",
        g,
        v,
    )
    require(
        beta.ne == (1, n_tokens, n_head, n_seqs), "delta_net: beta must be [1, T, H, B]", beta, v
    )
    require(
        state.ne == (size, size * n_head, 1, n_seqs),
        "delta_net: state must be [S, S * H, 1, B]",
        state,
        v,
    )
    if saved is not None:
        room = saved.type is F32 and saved.is_contiguous()
        need = (n_tokens - 1) * state.n_elements
        require(room and saved.n_elements >= need, f"delta_net: saved must be {need} f32", saved)
        src = (*src, saved)
    n = v.n_elements + state.n_elements
    return node("DELTA_NET", F32, (n,), *src, params=(REPEAT[repeat],))
