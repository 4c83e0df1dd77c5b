"""State-space and delta-net recurrences."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32


@op("SSM_CONV")
def ssm_conv(sx: Tensor, c: Tensor) -> Tensor:
    """Causal depthwise convolution (ggml.c:ggml_ssm_conv). sx [d_conv - 1 + T, C, B], c [d_conv, C]
    -> [C, T, B]

    y[ch, t, b] = sum_j sx[t + j, ch, b] * c[j, ch]
    """
    n_t = sx.ne[0] - c.ne[0] + 1
    require(
        sx.ne[3] == 1 and c.n_elements == c.ne[0] * c.ne[1],
        "ssm_conv: sx must be 3-d and c a matrix",
        sx,
        c,
    )
    require(sx.ne[1] == c.ne[1] and n_t >= 0, "ssm_conv: sx must be [d_conv - 1 + T, C, B]", sx, c)
    return node("SSM_CONV", F32, (c.ne[1], n_t, sx.ne[2]), sx, c)


@op("SSM_SCAN", "n_snapshots:i")
def ssm_scan(
    s: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    ids: Tensor,
    n_snapshots: int = 1,
) -> Tensor:
    """Selective scan of Mamba-1 and -2 (ggml.c:ggml_ssm_scan, arXiv 2312.00752).

    s [N, dim, H, cells], x [dim, H, T, B], dt [H, T, B], a [N or 1, H], b, c [N, G, T, B], ids I32
    [B]
    -> 1-d: y [dim, H, T, B], then n_snapshots states [N, dim, H, B], newest first
    """
    require(
        all(t.is_contiguous() for t in (s, dt, a)),
        "ssm_scan: s, dt and a must be contiguous",
        s,
        dt,
        a,
    )
    dense = all(t.nb[0] == t.type.type_size and t.nb[1] == t.ne[0] * t.nb[0] for t in (x, b, c))
    require(dense, "ssm_scan: x, b and c must be dense in dimensions 0 and 1", x, b, c)
    require(b.ne == c.ne, "ssm_scan: b and c must have the same shape", b, c)
    n_head, n_tokens, n_seqs = x.ne[1:]
    require(dt.ne == (n_head, n_tokens, n_seqs, 1), "ssm_scan: dt must be [H, T, B]", x, dt)
    require(
        s.ne[1] == x.ne[0] and s.ne[2] == n_head, "ssm_scan: s must be [N, dim, H, cells]", s, x
    )
    require(
        (b.ne[0], b.ne[2], b.ne[3]) == (s.ne[0], n_tokens, n_seqs),
        "ssm_scan: b must be [N, G, T, B]",
        s,
        b,
    )
    require(
        ids.type is I32 and ids.n_elements == ids.ne[0] == n_seqs,
        "ssm_scan: ids must be i32 [B]",
        ids,
    )
    require(a.ne[1] == n_head and a.ne[0] in (1, s.ne[0]), "ssm_scan: a must be [N or 1, H]", a, s)
    require(
        n_snapshots == 1 or (n_snapshots > 1 and a.ne[0] == 1),
        "ssm_scan: snapshots need a scalar decay",
        a,
    )
    n = x.n_elements + n_snapshots * s.ne[0] * s.ne[1] * s.ne[2] * n_seqs
    return node("SSM_SCAN", F32, (n,), s, x, dt, a, b, c, ids, params=(n_snapshots,))


@op("GATED_DELTA_NET", "n_snapshots:i")
def gated_delta_net(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, n_snapshots: int = 1
) -> Tensor:
    """The gated delta rule over T tokens (ggml.c:ggml_gated_delta_net, arXiv 2412.06464; per-
    channel gate: KDA).

    q, k [S, H_k, T, B_k], v [S, H, T, B], g [1 or S, H, T, B], beta [1, H, T, B], state [S, S, H,
    B] (key index fast)
    -> [S * H, T * B + n_snapshots * S * B]: outputs [S, H, T, B], then states [S, S, H, B], newest
    first; only
    min(T, n_snapshots) of them are written (T = 0: one, `state` itself). Value head h uses key head
    h mod H_k.
    Per token: M *= exp(g); M[j] += beta * (v[j] - <M[j], k>) * k; o[j] = <M[j], q> / sqrt(S).
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
    require(q.ne[1] > 0 and n_head % q.ne[1] == 0 and q.ne[3] > 0 and n_seqs % q.ne[3] == 0,
            "gated_delta_net: key heads and batch must divide v's", q, v)  # fmt: skip
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
