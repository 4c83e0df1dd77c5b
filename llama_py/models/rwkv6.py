"""RWKV-6: no attention, a state that decays as each token says (models/rwkv6.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.ops import add, reshape, scale
from ggml_py.tensor import Tensor
from llama_py.blocks.rwkv import (
    ChannelMix6,
    RwkvHParams,
    TimeMix6,
    load_shift,
    shifted,
    store_shift,
)
from llama_py.graph.builder import GraphBuilder
from llama_py.linear import Norm
from llama_py.models._decoder import Decoder
from llama_py.weights import Weights


@dataclass(slots=True)
class Rwkv6Layer:
    """x + time_mix(norm(x)), then x + channel_mix(norm(x)); each also sees the token before.

    halved  the result is
    """

    norm: Norm
    time_mix: TimeMix6
    norm_2: Norm
    channel_mix: ChannelMix6
    halved: bool

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        n_embd = g.hp.n_embd
        x = reshape(cur, n_embd, *g.per_seq)
        before, before_2 = load_shift(g, il)
        att = self.norm(g, x, "attn_norm", il)
        ffn_inp = add(self.time_mix(g, att, shifted(att, before), il), x)
        ffn = self.norm_2(g, g.cb(ffn_inp, "ffn_inp", il), "ffn_norm", il)
        x_prev = shifted(ffn, before_2)
        store_shift(g, att, ffn, il)
        rows = [reshape(t, n_embd, g.n_tokens) for t in (ffn_inp, ffn, x_prev)]
        ffn_inp, ffn, x_prev = g.outputs(*rows) if last else rows
        cur = add(self.channel_mix(g, ffn, x_prev, il), ffn_inp)
        return scale(cur, 0.5) if self.halved else cur


class Rwkv6(Decoder):
    arch = "rwkv6"
    HParams = RwkvHParams
    sizes = {24: "1.6B", (32, 2560): "3B", (32, 4096): "7B", 61: "14B", 64: "32B"}
    hp: RwkvHParams

    def declare_ends(self, w: Weights) -> None:
        n_embd = self.hp.n_embd
        self.embd_norm = w.norm("token_embd_norm", n_embd, kind="layer", bias="needed")
        self.output_norm = w.norm("output_norm", n_embd, kind="layer", bias="needed")
        self.output = w.output(n_embd, self.hp.n_vocab)

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.embd_norm(g, super().embed(g), il=0)

    def layer(self, w: Weights, il: int) -> Rwkv6Layer:
        hp, every = self.hp, self.hp.rescale_every_n_layers
        return Rwkv6Layer(
            w.norm("attn_norm", hp.n_embd, kind="layer", bias="needed"),
            TimeMix6(w, hp),
            w.norm("attn_norm_2", hp.n_embd, kind="layer", bias="needed"),
            ChannelMix6(w, hp.n_embd, hp.n_ff[il]),
            halved=every > 0 and (il + 1) % every == 0,
        )
