"""Hunyuan V4: several residual streams that blocks read and write with separate weights, gated
latent attention, optionally to tokens that an earlier layer's indexer chose; experts after the
first layers (models/hy-v4.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, cast, concat, mul, repeat_4d, reshape, scale, sigmoid, view
from ggml_py.tensor import Tensor
from ggml_py.types import F32
from llama_py.blocks.activation import clamped_silu
from llama_py.blocks.streams import mixes, row, stream, sum_streams
from llama_py.gguf.keys import Keys, number, numbers, trunk_layers, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.dsa import Choosing, ChoosingHParams, SharingAttention
from llama_py.models.trunks.experts import expert_layer
from llama_py.weights import Weights


class HyV4HParams(ChoosingHParams):
    """n_stream   residual streams; stream_eps, stream_gain  of their weights
    indexer_types   by layer: 1 has an indexer, 0 uses the choice of the last indexer
    swiglu_clamp_exp   limits of routed experts' gates, by layer; 0: no limit
    """

    usual_gating = "softmax"
    indexer_rope = ROPE_NORMAL
    indexer_rotated = False
    n_stream: int = uint("hyper_connection.count", least=1)
    stream_eps: float = number("hyper_connection.epsilon", least=0)
    stream_gain: float = number("hyper_connection.magnitude")
    swiglu_clamp_exp: tuple[float, ...] = numbers("swiglu_clamp_exp", 0.0)
    indexer_n_head: int = uint("attention.indexer.head_count", 0)
    indexer_head_size: int = uint("attention.indexer.key_length", 0)
    indexer_top_k: int = uint("attention.indexer.top_k", 0)
    indexer_types: tuple[int, ...] = uints("attention.indexer.types", 0, count=trunk_layers)

    def load(self, keys: Keys) -> None:
        self.f_norm_eps = self.f_norm_rms_eps  # the indexer's
        super().load(keys)
        self.indexer_offset = self.indexer_head_size - self.n_rot
        self.indexers = (-1,) * self.n_layer
        if self.indexer_top_k:
            self.indexers = self.last_indexers(keys, self.indexer_types)

    def check_indexer(self, keys: Keys) -> None:
        if self.indexer_top_k and self.indexer_head_size <= self.n_rot:
            raise keys.error(
                "attention.indexer.key_length", f"must be above rope.dimension_count = {self.n_rot}"
            )
        if self.indexer_top_k and not self.indexer_n_head:
            raise keys.error("attention.indexer.head_count", "must be at least 1")

    def indexer_layer(self, il: int) -> int:
        return self.indexers[il] if il < self.n_layer else -1


class HyV4Attention(SharingAttention):
    """Results of heads are gated channel by channel."""

    few_names = True

    def __init__(self, w: Weights, hp: HyV4HParams) -> None:
        self.sinks = w.tensor("attn_sinks.weight", hp.layers[w.il].n_head)
        super().__init__(w, hp, kq_scale=None, scaled=False)
        self.gate = w.linear("attn_gate", hp.n_embd, hp.n_embd_values(w.il), scaled=False)

    def gate_heads(self, g: GraphBuilder, attended: Tensor, cur: Tensor, il: int) -> Tensor:
        g.cb(attended, "attn_kqv", il)
        gate = sigmoid(self.gate(g, cur))
        return g.cb(mul(attended, gate), "attn_gated", il)


class HyV4Streams:
    """Weights for reading the residual streams, and for adding a block's result to each."""

    def __init__(self, w: Weights, hp: HyV4HParams, kind: str) -> None:
        """Declare the weights; `kind`: attn or ffn."""
        self.n, self.eps, self.gain = hp.n_stream, hp.stream_eps, hp.stream_gain
        self.fn = w.tensor(f"hc_{kind}_fn.weight", hp.n_stream * hp.n_embd, 2 * hp.n_stream)
        self.base = w.tensor(f"hc_{kind}_base.weight", 2 * hp.n_stream)
        self.scale = w.tensor(f"hc_{kind}_scale.weight", 2)

    def read(self, g: GraphBuilder, x: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Mix streams x [n_embd, n_stream, n_tokens] into the block's input [n_embd, n_tokens];
        also return the weights of its result [n_stream, n_tokens]."""
        mixed = g.cb(mixes(g, x, self.fn), "hc_mixes", il)
        pre = scale(self._weights(mixed, 0), 1.0, self.eps)
        g.cb(pre, "hc_pre", il)
        post = scale(scale(self._weights(mixed, 1), self.gain), 1.0, self.eps)
        g.cb(post, "hc_post_gate", il)
        return _sum_streams(x, pre), post

    def _weights(self, mixes: Tensor, which: int) -> Tensor:
        """Return weights for reading (0) or writing (1) from mixes [2 * n_stream, n_tokens]."""
        x = view(mixes, (self.n, mixes.ne[1]), offset=which * self.n)
        x = mul(x, view(self.scale, (1,), offset=which))
        return sigmoid(add(x, view(self.base, (self.n,), offset=which * self.n)))

    def write(self, cur: Tensor, x: Tensor, post: Tensor) -> Tensor:
        """Add `cur` [n_embd, n_tokens], weighted per stream, to each stream. -> like x"""
        n_embd, n_tokens = cur.ne[:2]
        cur, post, x = (cast(t, F32) for t in (cur, post, x))
        out: Tensor | None = None
        for i in range(self.n):
            one = add(stream(x, i), mul(cur, row(post, i)))
            one = reshape(one, n_embd, 1, n_tokens)
            out = one if out is None else concat(out, one, 1)
        assert out is not None
        return cast(out, F32)


def _sum_streams(x: Tensor, weights: Tensor) -> Tensor:
    return cast(sum_streams(cast(x, F32), weights), F32)


@dataclass(slots=True)
class HyV4Layer:
    attn_streams: HyV4Streams
    attn_norm: Norm
    attention: Block
    ffn_streams: HyV4Streams
    ffn_norm: Norm
    feed_forward: Block

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        """Apply the layer: [n_embd, n_stream, n_tokens] -> same shape."""
        x = cur
        cur, post = self.attn_streams.read(g, x, il)
        cur = self.attention(g, self.attn_norm(g, cur, "attn_norm", il), il)
        x = g.cb(self.attn_streams.write(cur, x, post), "hc_attn_out", il)
        cur, post = self.ffn_streams.read(g, x, il)
        cur = self.feed_forward(g, self.ffn_norm(g, cur, "ffn_norm", il), il)
        return self.ffn_streams.write(cur, x, post)


class HyV4(Choosing):
    arch = "hy_v4"
    HParams = HyV4HParams
    hp: HyV4HParams

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        n, n_embd = self.hp.n_stream, self.hp.n_embd
        self.head_fn = w.tensor("output_hc_fn.weight", n * n_embd, n)
        self.head_base = w.tensor("output_hc_base.weight", n)
        self.head_scale = w.tensor("output_hc_scale.weight", 1)

    def layer(self, w: Weights, il: int) -> HyV4Layer:
        hp = self.hp
        return HyV4Layer(
            HyV4Streams(w, hp, "attn"),
            w.norm("attn_norm", hp.n_embd),
            HyV4Attention(w, hp),
            HyV4Streams(w, hp, "ffn"),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il, routed_act=clamped_silu(hp.swiglu_clamp_exp[il])),
        )

    def embed(self, g: GraphBuilder) -> Tensor:
        n, n_embd = self.hp.n_stream, self.hp.n_embd
        cur = reshape(super().embed(g), n_embd, 1, g.n_tokens)
        return g.cb(repeat_4d(cur, n_embd, n, g.n_tokens, 1), "hc_init")

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        n_embd, n = cur.ne[:2]
        flat = g.outputs(reshape(cur, n_embd * n, cur.ne[2]))[0]
        x = reshape(flat, n_embd, n, flat.ne[1])
        mixed = g.cb(mixes(g, x, self.head_fn), "hc_head_mixes")
        pre = sigmoid(add(mul(mixed, self.head_scale), self.head_base))
        pre = g.cb(scale(pre, 1.0, self.hp.stream_eps), "hc_head_pre")
        cur = g.cb(_sum_streams(x, pre), "hc_head")
        super().finish(g, cur, True)
