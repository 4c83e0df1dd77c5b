"""Embeddings of the last few tokens together, added to residual streams by a gate
(models/qwen4exp.cpp:build_inp_ple, build_ple)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.ops import (
    abs,
    add,
    cast,
    clamp,
    concat,
    cont,
    cpy,
    get_rows,
    mul,
    repeat_4d,
    reshape,
    rms_norm,
    scale,
    sgn,
    sigmoid,
    silu,
    sqrt,
    sum_rows,
    transpose,
    view,
)
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.gated_streams import grouped_norm
from llama_py.blocks.state import cells_2d, n_snapshots, read_states
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.ngrams import Hashes, InputNGrams
from llama_py.weights import Weights

KEY = "ngrams"


@dataclass(frozen=True, slots=True)
class NGramSizes:
    """n_gram    tokens of the longest group; also the steps between taps of the convolution
    n_kernel  taps of the convolution
    n_embd, n_stream   sizes of the residual streams
    """

    n_gram: int
    n_kernel: int
    n_embd: int
    n_stream: int

    @property
    def n_history(self) -> int:
        """Number of earlier inputs that the convolution reads."""
        return (self.n_kernel - 1) * self.n_gram

    @property
    def n_state(self) -> int:
        """Floats of a sequence's state."""
        return self.n_history * self.n_embd * self.n_stream


def ngram_rows(g: GraphBuilder, table: Tensor, hashes: Hashes) -> Tensor:
    """Look up each token's n-gram rows and share them with all blocks. -> [n_embd, n_tokens]"""
    inp = g.add_input(InputNGrams(g.params, hashes))
    rows = get_rows(table, inp.rows)
    rows = reshape(rows, table.ne[0] * hashes.n_heads, g.n_tokens)
    return g.expand(g.cb(g.shared(KEY, lambda: rows), "ple_embd"))


class NGrams:
    """Value of the rows, weighted for each stream by the match of the rows' key, plus a
    convolution over earlier tokens."""

    def __init__(self, w: Weights, n: NGramSizes) -> None:
        self.n, width = n, n.n_embd * n.n_stream
        self.key = w.linear("ple_key", n.n_embd, width, scaled=False)
        self.value = w.linear("ple_value", n.n_embd, n.n_embd, scaled=False)
        self.norm_key, self.norm_query, self.norm_conv = (
            grouped_norm(w, f"ple_norm_{x}.weight", n.n_embd, n.n_stream)
            for x in ("key", "query", "conv")
        )
        self.conv1d = w.tensor("ple_conv1d.weight", n.n_kernel, width)

    def __call__(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Add gated n-gram embeddings to x [n_embd, n_stream, n_tokens]. -> like x"""
        n_embd, n_stream, n_tokens, _ = x.ne
        rows = g.get_shared(KEY)
        key, value = self.key(g, rows), self.value(g, rows)
        key = self._normalize(g, key, self.norm_key)
        gate = self._gate(g, key, self._normalize(g, x, self.norm_query), il)
        value = reshape(value, n_embd, 1, n_tokens)
        value = repeat_4d(value, n_embd, n_stream, n_tokens, 1)
        gated = g.cb(mul(value, gate), "ple_gated_value", il)
        normed = self._normalize(g, reshape(gated, n_embd * n_stream, n_tokens), self.norm_conv)
        cur = silu(self._convolve(g, reshape(normed, n_embd * n_stream, n_tokens), il))
        cur = g.cb(reshape(cont(cur), n_embd, n_stream, n_tokens), "ple_conv_out", il)
        return add(x, add(gated, cur))

    def _normalize(self, g: GraphBuilder, x: Tensor, weights: Tensor) -> Tensor:
        """Normalize each stream of a token. -> [n_embd, n_stream, n_tokens]"""
        x = reshape(x, self.n.n_embd, self.n.n_stream, g.n_tokens)
        return mul(rms_norm(x, g.hp.f_norm_rms_eps), weights)

    def _gate(self, g: GraphBuilder, key: Tensor, query: Tensor, il: int) -> Tensor:
        """Return the sigmoid of the signed root of key * query. -> [1, n_stream, T]"""
        fit = scale(sum_rows(mul(key, query)), inv_sqrt(self.n.n_embd))
        size = sqrt(clamp(abs(fit), 1e-6, math.inf))
        return g.cb(sigmoid(mul(sgn(fit), size)), "ple_gate", il)

    def _convolve(self, g: GraphBuilder, x: Tensor, il: int) -> Tensor:
        """Convolve over inputs that are n_gram tokens apart, per channel: [width, n_tokens] ->
        [width, T, B]."""
        n, width, (n_seq_tokens, n_seqs) = self.n, x.ne[0], g.per_seq
        states = g.inp_rs.mctx.get_p_l(il)
        x = load_conv_state(g, states, reshape(x, width, *g.per_seq), n.n_history, il)
        total: Tensor | None = None
        for k in range(n.n_kernel):
            part = view(x, (n_seq_tokens, width, n_seqs), offset=k * n.n_gram)
            weight = view(self.conv1d, (1, width), offset=k)
            weight = reshape(cont(weight), width)
            weight = weight if weight.type is F32 else cast(weight, F32)
            part = mul(cont(transpose(part)), weight)
            total = part if total is None else add(total, part)
        assert total is not None
        return total


def load_conv_state(g: GraphBuilder, states: Tensor, x: Tensor, width: int, il: int) -> Tensor:
    """Prepend each sequence's last `width` inputs and store its new last inputs, for every token
    that a rollback can return to. x [C, T, B] -> [width + T, C, B]"""
    n_seqs, row, channels = g.ubatch.n_seqs, states.ne[0], x.ne[0]
    before = reshape(read_states(g, states, row), width, channels, n_seqs)
    x = concat(g.cb(before, "conv_state_at", il), transpose(x), 0)
    for slot in range(n_snapshots(g)):
        start = max(0, x.ne[0] - width - slot)
        last = view(x, (width, channels, n_seqs), offset=start)
        g.expand(cpy(cont(last), cells_2d(g, states, row, slot)))
    return x


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, conv_state_at="load_conv_state")
