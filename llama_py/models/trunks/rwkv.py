"""Decoders without attention, which mix each token with the preceding one (models/rwkv6.cpp,
rwkv7.cpp, rwkv6qwen2.cpp, arwkv7.cpp)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from ggml_py.ops import add, reshape, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.rwkv import ChannelMix, RwkvHParams, load_shift, shift_tokens, store_shift
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.models.trunks.decoder import Decoder
from llama_py.weights import Weights

Sizes = dict[int | tuple[int, int], str]

SIZES_6: Sizes = {24: "1.6B", (32, 2560): "3B", (32, 4096): "7B", 61: "14B", 64: "32B"}
SIZES_7: Sizes = {
    (12, 768): "190M", (24, 1024): "450M", (24, 2048): "1.5B", (28, 1536): "1.5B",
    (28, 3584): "7B", (32, 2560): "2.9B", (32, 4096): "7B", (61, 4096): "14B",
}  # fmt: skip


class TimeMix(Protocol):
    """The state's part of a layer."""

    def __call__(self, g: GraphBuilder, cur: Tensor, x_prev: Tensor, il: int) -> Tensor:
        """Apply the time mix to cur [n_embd, T, B] with preceding tokens `x_prev`. -> like cur"""


@dataclass(slots=True)
class RwkvLayer:
    """x + time_mix(norm(x)), then x + channel_mix(norm(x)); each also reads the token before.

    halved  halve the result
    """

    norm: Norm
    time_mix: TimeMix
    norm_2: Norm
    channel_mix: ChannelMix
    halved: bool = False

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        n_embd = g.hp.n_embd
        x = reshape(cur, n_embd, *g.per_seq)
        before, before_2 = load_shift(g, il, 2)
        att = self.norm(g, x, "attn_norm", il)
        ffn_inp = add(self.time_mix(g, att, shift_tokens(att, before), il), x)
        ffn = self.norm_2(g, g.cb(ffn_inp, "ffn_inp", il), "ffn_norm", il)
        x_prev = shift_tokens(ffn, before_2)
        store_shift(g, att, ffn, il=il)
        rows = [reshape(t, n_embd, g.n_tokens) for t in (ffn_inp, ffn, x_prev)]
        ffn_inp, ffn, x_prev = g.outputs(*rows) if last else rows
        cur = add(self.channel_mix(g, ffn, x_prev, il), ffn_inp)
        return scale(cur, 0.5) if self.halved else cur


class RwkvDecoder(Decoder):
    """Norms with mean and bias, also of the embeddings."""

    hp: RwkvHParams

    def declare_ends(self, w: Weights) -> None:
        n_embd = self.hp.n_embd
        self.embd_norm = w.norm("token_embd_norm", n_embd, kind="layer", bias="needed")
        self.output_norm = w.norm("output_norm", n_embd, kind="layer", bias="needed")
        self.output = w.output(n_embd, self.hp.n_vocab)

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.embd_norm(g, super().embed(g), il=0)

    def mixed_layer(
        self, w: Weights, time_mix: TimeMix, *, gated: bool, halved: bool = False
    ) -> RwkvLayer:
        """Declare a layer with this time mix; `gated`: the channel mix has a gate."""
        n_embd = self.hp.n_embd
        return RwkvLayer(
            w.norm("attn_norm", n_embd, kind="layer", bias="needed"),
            time_mix,
            w.norm("attn_norm_2", n_embd, kind="layer", bias="needed"),
            ChannelMix(w, n_embd, self.hp.n_ff[w.il], gated=gated),
            halved,
        )


@dataclass(slots=True)
class ShiftedLayer:
    """x + time_mix(norm(x)), which also reads the token before, then x + feed_forward(norm(x))"""

    norm: Norm
    time_mix: TimeMix
    ffn_norm: Norm
    feed_forward: FeedForward

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        n_embd = g.hp.n_embd
        x = reshape(cur, n_embd, *g.per_seq)
        (before,) = load_shift(g, il, 1)
        att = self.norm(g, x, "attn_norm", il)
        cur = self.time_mix(g, att, shift_tokens(att, before), il)
        store_shift(g, att, il=il)
        ffn_inp = g.cb(add(cur, x), "ffn_inp", il)
        ffn_inp = reshape(ffn_inp, n_embd, g.n_tokens)
        ffn_inp = g.outputs(ffn_inp)[0] if last else ffn_inp
        cur = self.feed_forward(g, self.ffn_norm(g, ffn_inp, "ffn_norm", il), il)
        return add(cur, ffn_inp)


class ShiftedDecoder(Decoder):
    """A Transformer's layers with time mix in the place of attention."""

    hp: RwkvHParams

    @abstractmethod
    def time_mix(self, w: Weights) -> TimeMix:
        """Declare the time mix that replaces a layer's attention."""

    def layer(self, w: Weights, il: int) -> ShiftedLayer:
        n_embd = self.hp.n_embd
        return ShiftedLayer(
            w.norm("attn_norm", n_embd),
            self.time_mix(w),
            w.norm("ffn_norm", n_embd),
            FeedForward(w, n_embd, self.hp.layers[il].n_ff, scaled=False),
        )
