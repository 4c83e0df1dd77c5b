"""openPangu Embedded: Llama's layers with a bias on attention's output (models/pangu-embed.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class PanguEmbeddedHParams(WholeHParams):
    rope_type = ROPE_NEOX


class PanguEmbedded(PlainDecoder, LongDecoder):
    arch = "pangu-embedded"
    HParams = PanguEmbeddedHParams
    sizes = {26: "1B", 34: "7B"}
    layer_sum = "ffn_out"
    freqs_unread = True

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, out_bias="needed", factors=self.factors)

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False, name="")
