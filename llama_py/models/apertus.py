"""Apertus: a feed-forward with a separate activation per layer, queries and keys normed head by
head (models/apertus.cpp)."""

from __future__ import annotations

from functools import partial

from ggml_py.ops import xielu
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import Activation
from llama_py.blocks.attention import QKV, Attention, head_norms
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import numbers
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Block, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class ApertusHParams(WholeHParams):
    """xielu_*  the activation's parameters, by layer"""

    rope_type = ROPE_NEOX
    xielu_alpha_n: tuple[float, ...] = numbers("/xielu.alpha_n")
    xielu_alpha_p: tuple[float, ...] = numbers("/xielu.alpha_p")
    xielu_beta: tuple[float, ...] = numbers("/xielu.beta")
    xielu_eps: tuple[float, ...] = numbers("/xielu.eps")


class Apertus(PlainDecoder, LongDecoder):
    arch = "apertus"
    HParams = ApertusHParams
    hp: ApertusHParams
    sizes = {32: "8B"}
    layer_sum = "ffn_out"

    def attention(self, w: Weights, il: int) -> Block:
        return ApertusAttention(
            w,
            self.hp,
            out_bias=True,
            factors=self.factors,
            name="attn_out",
            norms=head_norms(w, self.hp, "unread"),
            turned=("Qcur_pos", "Kcur_pos"),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        act = partial(
            xielu,
            alpha_n=hp.xielu_alpha_n[il],
            alpha_p=hp.xielu_alpha_p[il],
            beta=hp.xielu_beta[il],
            eps=hp.xielu_eps[il],
        )
        return FeedForward(
            w,
            hp.n_embd,
            hp.layers[il].n_ff,
            act=Activation("xielu", act),
            gated=False,
            scaled=False,
            name="ffn_down",
        )


class ApertusAttention(Attention):
    parts_keep = KVCacheSpec

    def place(self, g: GraphBuilder, qkv: QKV, il: int) -> tuple[Tensor, Tensor]:
        g.cb(qkv.v, "Vcur_pos", il)
        return super().place(g, qkv, il)
