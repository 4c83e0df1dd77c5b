"""ik_llama.cpp's causal convolution, which keeps the states of its sequences itself."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32


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
