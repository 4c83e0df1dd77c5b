"""State-space models: Mamba's scan and the causal convolution before it."""

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


@op("SSM_CONV_SEQ", writes=(4,))
def ssm_conv_seq(
    s: Tensor, x: Tensor, w: Tensor, sq: Tensor, saved: Tensor | None = None
) -> Tensor:
    """Causal depthwise convolution of tokens of several sequences (ik_llama.cpp
    ggml.c:ggml_ssm_conv).

    s [d_conv - 1, C, n_seqs], x [C, T], w [d_conv, C], sq I32 [n_seqs, T]
    -> 1-d: y [C, T], then blocks [d_conv, C, n_seqs] of each sequence's last inputs; a new s is
    their columns from the second on. The first column of a sequence without tokens is zero.
    Token t belongs to sequence sq[0, t]; its state is then copied to the sequences sq[1, t],
    sq[2, t]... up to the first negative number.
    saved: for one sequence, at least (d_conv - 1) * C * T elements that get s after each token.
    """
    d_conv, n_channels = w.ne[:2]
    n_seqs, n_tokens = s.ne[2], x.ne[1]
    given = (s, x, w) if saved is None else (s, x, w, saved)
    all_f32 = all(t.type is F32 for t in given) and sq.type is I32
    require(all_f32, "ssm_conv_seq: all but sq must be f32, sq i32", *given, sq)
    require(
        all(t.is_contiguous() for t in (*given, sq)[3:]) and w.is_contiguous(),
        "ssm_conv_seq: w, sq and saved must be contiguous",
        w,
        sq,
        saved,
    )
    require(all(t.has_contiguous_rows() for t in (s, x)), "ssm_conv_seq: rows must be dense", s, x)
    require(
        d_conv > 1 and w.ne[2:] == (1, 1) and s.ne == (d_conv - 1, n_channels, n_seqs, 1),
        "ssm_conv_seq: w must be [d_conv, C], s [d_conv - 1, C, n_seqs]",
        w,
        s,
    )
    require(x.ne == (n_channels, n_tokens, 1, 1), "ssm_conv_seq: x must be [C, T]", x, w)
    require(sq.ne == (n_seqs, n_tokens, 1, 1), "ssm_conv_seq: sq must be [n_seqs, T]", sq, s, x)
    need = (d_conv - 1) * n_channels * n_tokens
    require(
        saved is None or (n_seqs == 1 and saved.n_elements >= need),
        f"ssm_conv_seq: saved needs a single sequence and {need} elements",
        s,
        saved,
    )
    n = x.n_elements + d_conv * n_channels * n_seqs
    src = (s, x, w, sq) if saved is None else (s, x, w, sq, saved)
    return node("SSM_CONV_SEQ", F32, (n,), *src)


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
    -> 1-d: y [dim, H, T, B], then n_snapshots states [N, dim, H, B], newest first; only
    min(T, n_snapshots) states are written. ggml supports a scalar decay only.
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
    require(s.ne[3] > 0 or n_seqs == 0, "ssm_scan: s must have a cell", s, x)
    require(n_snapshots >= 1, f"ssm_scan: n_snapshots must be at least 1, got {n_snapshots}", s)
    n = x.n_elements + n_snapshots * s.ne[0] * s.ne[1] * s.ne[2] * n_seqs
    return node("SSM_SCAN", F32, (n,), s, x, dt, a, b, c, ids, params=(n_snapshots,))
