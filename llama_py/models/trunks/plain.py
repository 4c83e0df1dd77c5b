"""Base class of many decoders: attention and a feed-forward, each after an RMS norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.blocks.attention import Attention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS, HParams
from llama_py.models.trunks.decoder import AnyLayer, Block, Decoder, Layer
from llama_py.weights import Weights


class PlainHParams(HParams):
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class WholeHParams(PlainHParams):
    """RoPE rotates whole heads."""

    whole_rope = True


class PlainDecoder(Decoder):
    """Decoder of attention and feed-forward; an architecture overrides the parts that differ."""

    def layer(self, w: Weights, il: int) -> AnyLayer:
        return Layer(
            w.norm("attn_norm", self.hp.n_embd),
            self.attention(w, il),
            w.norm("ffn_norm", self.hp.n_embd),
            self.feed_forward(w, il),
        )

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp)

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, scaled=False)


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Plain="PlainDecoder")
