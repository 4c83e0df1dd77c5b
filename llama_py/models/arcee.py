"""Arcee AFM: a feed-forward without a gate (models/arcee.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import RELU_SQR
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class ArceeHParams(WholeHParams):
    rope_type = ROPE_NORMAL


class Arcee(PlainDecoder, LongDecoder):
    arch = "arcee"
    HParams = ArceeHParams
    sizes = {36: "4B"}
    layer_sum = "ffn_out"

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, factors=self.factors, name="attn_out")

    def feed_forward(self, w: Weights, il: int) -> Block:
        n_ff = self.hp.layers[il].n_ff
        return FeedForward(w, self.hp.n_embd, n_ff, act=RELU_SQR, gated=False, scaled=False)
