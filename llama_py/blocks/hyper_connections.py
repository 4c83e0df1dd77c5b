"""Hyper-connections: blocks read a mix of several residual streams; their result is added to all
streams, which are mixed (models/deepseek4.cpp, arXiv 2512.24880)."""

from __future__ import annotations

from typing import NamedTuple

from ggml_py.ops import (
    add,
    concat,
    cont,
    div,
    dsv4_hc_comb,
    dsv4_hc_post,
    dsv4_hc_pre,
    fill,
    mul,
    permute,
    reshape,
    scale,
    sigmoid,
    soft_max,
    sum_rows,
    view,
)
from ggml_py.ops.hyper_connections import MIXES, STREAMS
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.streams import mixes, row, stream, sum_streams
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.variants import Variant
from llama_py.weights import Weights

HYPER_CONNECTIONS = Variant(
    "hyper_connections",
    ("fused", "nodes"),
    "how residual streams are read, mixed and written",
    go_back=("nodes",),
)


class Streams(NamedTuple):
    """Residual streams and the weights for writing a block's result.

    x     [n_embd, 4, n_tokens]
    post  [4, n_tokens] weight of the result for each stream
    comb  [4 (to), 4 (from), n_tokens] mixing weights
    """

    x: Tensor
    post: Tensor
    comb: Tensor


class HyperConnections:
    """Weights for reading and writing the residual streams. They depend on the streams of a token,
    normed together."""

    def __init__(self, w: Weights, n_embd: int, stem: str, *, n_iter: int, eps: float) -> None:
        """Declare the weights; `n_iter`: steps that normalize mixing weights; `eps`: added."""
        self.n_iter, self.eps = n_iter, eps
        self.fn = w.tensor(f"{stem}_fn.weight", STREAMS * n_embd, MIXES)
        self.base = w.tensor(f"{stem}_base.weight", MIXES)
        self.scale = w.tensor(f"{stem}_scale.weight", 3)

    def read(self, g: GraphBuilder, x: Tensor, il: int, name: str) -> tuple[Tensor, Streams]:
        """Mix streams x [n_embd, 4, n_tokens] into the block's input [n_embd, n_tokens]."""
        fused = g.form(HYPER_CONNECTIONS) == "fused"
        mixed = g.cb(mixes(g, x, self.fn), "hc_mixes", il)
        pre = sigmoid(self._affine(mixed, 0, 0, STREAMS))
        pre = g.cb(scale(pre, 1.0, self.eps), "hc_pre", il)
        post = sigmoid(self._affine(mixed, 1, STREAMS, STREAMS))
        post = g.cb(scale(post, 2.0), "hc_post", il)
        if fused:
            comb = dsv4_hc_comb(mixed, self.scale, self.base, self.eps, self.n_iter)
            g.mark_fused(HYPER_CONNECTIONS.kind, comb)
        else:
            comb = self._affine(mixed, 2, 2 * STREAMS, STREAMS * STREAMS)
            comb = self._sinkhorn(reshape(comb, STREAMS, STREAMS, x.ne[2]))
        g.cb(comb, "hc_comb", il)
        cur = (
            g.mark_fused(HYPER_CONNECTIONS.kind, dsv4_hc_pre(x, pre))
            if fused
            else sum_streams(x, pre)
        )
        return g.cb(cur, name, il), Streams(x, post, comb)

    def _affine(self, mixes: Tensor, which: int, offset: int, n: int) -> Tensor:
        """Scale and shift n of each token's mixes, from `offset` on. -> [n, n_tokens]"""
        factor = view(self.scale, (1,), offset=which)
        base = view(self.base, (n,), offset=offset)
        return add(mul(view(mixes, (n, mixes.ne[1]), offset=offset), factor), base)

    def _sinkhorn(self, comb: Tensor) -> Tensor:
        """Normalize `comb` [4 (to), 4 (from), n_tokens] until its rows and columns sum to one."""
        comb = soft_max(comb)
        eps = fill(Tensor(F32, (1,)), self.eps)
        comb = add(comb, eps)
        for i in range(self.n_iter):
            if i:
                comb = div(comb, add(sum_rows(comb), eps))
            sums = add(sum_rows(cont(permute(comb, 1, 0, 2, 3))), eps)
            comb = div(comb, permute(sums, 1, 0, 2, 3))
        return comb

    def write(self, g: GraphBuilder, cur: Tensor, to: Streams) -> Tensor:
        """Write cur [n_embd, n_tokens] to all streams and return them, [n_embd, 4, n_tokens]."""
        if g.form(HYPER_CONNECTIONS) == "fused":
            res = dsv4_hc_post(cur, to.x, to.post, to.comb)
            return g.mark_fused(HYPER_CONNECTIONS.kind, res)
        out: Tensor | None = None
        for dst in range(STREAMS):
            one = mul(cur, row(to.post, dst))
            for src in range(STREAMS):
                comb = view(to.comb, (1, cur.ne[1]), (STREAMS * STREAMS,), dst + src * STREAMS)
                one = add(one, mul(stream(to.x, src), comb))
            one = reshape(one, cur.ne[0], 1, cur.ne[1])
            out = one if out is None else concat(out, one, 1)
        assert out is not None
        return out


class HeadConnections:
    """Weights for reading the streams before the LM head."""

    def __init__(self, w: Weights, n_embd: int, *, eps: float) -> None:
        self.eps = eps
        self.fn = w.tensor("output_hc_fn.weight", STREAMS * n_embd, STREAMS)
        self.base = w.tensor("output_hc_base.weight", STREAMS)
        self.scale = w.tensor("output_hc_scale.weight", 1)

    def read(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        """Merge streams x [n_embd, 4, n] into [n_embd, n], named `name`."""
        mixed = g.cb(mixes(g, x, self.fn), "hc_head_mixes")
        pre = sigmoid(add(mul(mixed, self.scale), self.base))
        pre = g.cb(scale(pre, 1.0, self.eps), "hc_head_pre")
        return g.cb(sum_streams(x, pre), name)
