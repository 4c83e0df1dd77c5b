"""Several residual streams that a block reads by gates of low rank (models/qwen4exp.cpp:
build_hc_mix, build_hc_combine)."""

from __future__ import annotations

from ggml_py.ops import (
    add,
    cont,
    dsv4_hc_post,
    dsv4_hc_pre_gated,
    mul,
    reshape,
    rms_norm,
    scale,
    sigmoid,
    silu,
    view,
)
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.weights import Weights


class GatedStreams:
    """Low-rank gates for reading a token's streams and adding a block's result."""

    def __init__(
        self, w: Weights, stem: str, n_embd: int, n_stream: int, rank: int, writes: bool = True
    ) -> None:
        """Declare the weights; `stem`: prefix of names; `writes`: False if no result is added."""
        self.n, width = n_stream, n_stream * n_embd
        self.norm = grouped_norm(w, f"{stem}_norm.weight", n_embd, n_stream)
        self.down = w.linear(f"{stem}_down", width, rank, scaled=False)
        self.up = w.linear(f"{stem}_up", rank, width, scaled=False)
        self.inject = w.linear(f"{stem}_inject", width, n_stream, scaled=False) if writes else None

    def read(self, g: GraphBuilder, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Mix streams x [n_embd, n_stream, T] into the block's input [n_embd, T]. Also return the
        weights [n_stream, T] of the block's result, or the streams if no result is added."""
        n_embd, n, n_tokens, _ = x.ne
        normed = mul(rms_norm(x, g.hp.f_norm_rms_eps), self.norm)
        normed = g.cb(reshape(normed, n_embd * n, n_tokens), "hc_norm", il)
        low = silu(scale(self.down(g, normed), 1.0 / n))
        gate = g.cb(self.up(g, low), "hc_gate", il)
        mixed = _gate(normed, gate, x) if il >= 0 else _mean(normed, gate, x)
        g.cb(mixed, "hc_mixed", il)
        if self.inject is None:
            return mixed, x
        return mixed, g.cb(self.inject(g, normed), "hc_inject", il)

    def write(self, g: GraphBuilder, cur: Tensor, x: Tensor, inject: Tensor, il: int) -> Tensor:
        """Add `cur`, weighted per stream, to each stream. cur [n_embd, T], inject [n_stream, T] ->
        like x"""
        weights = scale(sigmoid(scale(inject, 1.0 / self.n)), 2.0)
        return g.cb(dsv4_hc_post(cur, x, weights, None), "hc_combine", il)


def grouped_norm(w: Weights, name: str, n_embd: int, n_stream: int) -> Tensor:
    """Return the norm weights of all streams, stored consecutively, as [n_embd, n_stream]."""
    return w.tensor(name, n_embd * n_stream, shaped=(n_embd, n_stream))


def _gate(normed: Tensor, gate: Tensor, x: Tensor) -> Tensor:
    normed, gate = (reshape(t, *x.ne[:3]) for t in (normed, gate))
    return dsv4_hc_pre_gated(normed, gate, 1.0 / x.ne[1])


def _mean(normed: Tensor, gate: Tensor, x: Tensor) -> Tensor:
    """Compute the gated mean of streams without the fused op."""
    n_embd, n, n_tokens, _ = x.ne
    gated = reshape(mul(normed, sigmoid(gate)), n_embd, n, n_tokens)
    one = [view(gated, (n_embd, n_tokens), (n_embd * n,), i * n_embd) for i in range(n)]
    total = cont(one[0])
    for stream in one[1:]:
        total = add(total, stream)
    return scale(total, 1.0 / n)
