"""Gemma: embeddings and queries are scaled (models/gemma.cpp)."""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.activation import GELU
from llama_py.blocks.attention import ScaledAttention
from llama_py.blocks.feed_forward import FeedForward
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, PlainHParams
from llama_py.weights import Weights


class GemmaHParams(PlainHParams):
    rope_type = ROPE_NEOX


class Gemma(PlainDecoder):
    arch = "gemma"
    HParams = GemmaHParams
    sizes = {18: "2B", 28: "7B"}
    names = {"ffn_inp": "sa_out"}

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(scale(super().embed(g), self.hp.n_embd**0.5), "inp_scaled")

    def attention(self, w: Weights, il: int) -> Block:
        return ScaledAttention(w, self.hp)

    def feed_forward(self, w: Weights, il: int) -> Block:
        return FeedForward(w, self.hp.n_embd, self.hp.layers[il].n_ff, act=GELU, scaled=False)
