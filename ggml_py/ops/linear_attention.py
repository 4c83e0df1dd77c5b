"""Linear attention with a matrix per head as state: RWKV 6 and 7, gated linear attention."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32


def _recurrence(
    name: str,
    tokens: tuple[Tensor, ...],
    *src: Tensor,
    params: tuple[float, ...] = (),
    n_snapshots: int = 1,
) -> Tensor:
    """Return the node: `tokens` are all [S, H, T], the last source is the state."""
    size, n_head, n_tokens, batch = tokens[0].ne
    state = src[-1]
    n_seqs = state.ne[1]
    label = name.lower()
    require(
        all(t.type is F32 and t.is_contiguous() for t in src),
        f"{label}: all sources must be contiguous f32",
        *src,
    )
    require(
        batch == 1 and all(t.ne == tokens[0].ne for t in tokens),
        f"{label}: the inputs per token must be [S, H, T]",
        *tokens,
    )
    require(
        n_seqs > 0 and n_tokens % n_seqs == 0,
        f"{label}: the number of tokens must be a multiple of the number of sequences, got "
        f"{n_tokens} and {n_seqs}",
        state,
    )
    require(
        state.n_elements == size * size * n_head * n_seqs,
        f"{label}: the state must be [S * S * H, n_seqs]",
        state,
    )
    require(n_snapshots >= 1, f"{label}: n_snapshots must be at least 1, got {n_snapshots}", state)
    ne = (size * n_head, n_tokens + n_snapshots * size * n_seqs)
    return node(name, F32, ne, *src, params=params)


@op("RWKV_WKV6", "n_earlier:i")
def rwkv_wkv6(
    k: Tensor, v: Tensor, r: Tensor, tf: Tensor, td: Tensor, state: Tensor, n_snapshots: int = 1
) -> Tensor:
    """The time mixing of RWKV-6 (ggml.c:ggml_rwkv_wkv6, arXiv 2404.05892).

    k, v, r, td [S, H, T], tf [S, H], state [S * S * H, n_seqs]; sequences have T / n_seqs tokens
    -> [S * H, T + n_snapshots * S * n_seqs]: outputs [S, H, T], then states [S, S, H, n_seqs],
    value index fast, newest first; only min(T / n_seqs, n_snapshots) states are written. The op
    parameter is n_snapshots - 1, which is 0 as in ggml for one state.
    Per token: o = r (tf * k v^T + M); M = td * M + k v^T.
    """
    require(tf.n_elements == k.ne[0] * k.ne[1], "rwkv_wkv6: tf must be [S, H]", tf, k)
    return _recurrence(
        "RWKV_WKV6",
        (k, v, r, td),
        k,
        v,
        r,
        tf,
        td,
        state,
        params=(n_snapshots - 1,),
        n_snapshots=n_snapshots,
    )


@op("RWKV_WKV7", "n_earlier:i")
def rwkv_wkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    state: Tensor,
    n_snapshots: int = 1,
) -> Tensor:
    """The time mixing of RWKV-7 (ggml.c:ggml_rwkv_wkv7, arXiv 2503.14456).

    r, w, k, v, a, b [S, H, T], state [S * S * H, n_seqs]; sequences have T / n_seqs tokens
    -> as of `rwkv_wkv6`, but of the states [S, S, H, n_seqs] the key index is fast.
    Per token: M[i] = w * M[i] + v[i] k + <a, M[i]> b; o[i] = <M[i], r>.
    """
    return _recurrence(
        "RWKV_WKV7",
        (k, r, w, v, a, b),
        r,
        w,
        k,
        v,
        a,
        b,
        state,
        params=(n_snapshots - 1,),
        n_snapshots=n_snapshots,
    )


@op("GATED_LINEAR_ATTN", "scale:f n_earlier:i")
def gated_linear_attn(
    k: Tensor, v: Tensor, q: Tensor, g: Tensor, state: Tensor, scale: float, n_snapshots: int = 1
) -> Tensor:
    """Gated linear attention (ggml.c:ggml_gated_linear_attn, arXiv 2312.06635).

    k, v, q, g [S, H, T], state [S * S * H, n_seqs]; sequences have T / n_seqs tokens
    -> as of `rwkv_wkv6`. Per token: M = g * M + k v^T; o = scale * q M.
    """
    rows = (k, v, q, g)
    return _recurrence(
        "GATED_LINEAR_ATTN",
        rows,
        *rows,
        state,
        params=(scale, n_snapshots - 1),
        n_snapshots=n_snapshots,
    )
