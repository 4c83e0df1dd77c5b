"""ik_llama.cpp's delta net: the gates are made from raw values, the state is not transposed."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32

REPEAT = {"groups": 0, "tiles": 1}


@op("DELTA_NET", "repeat:i", writes=(6,))
def delta_net(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor,
    saved: Tensor | None = None, repeat: str = "groups",
) -> Tensor:  # fmt: skip
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
