"""BLOOM: ALiBi; norms, also of the embeddings, and matrices with biases (models/bloom.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams
from llama_py.weights import Weights


class BloomHParams(LayerNormHParams):
    max_alibi_bias = 8.0


class Bloom(LayerNormDecoder):
    arch = "bloom"
    HParams = BloomHParams
    sizes = {24: "1B", (30, 2560): "3B", (30, 4096): "7B"}
    qkv_bias = out_bias = ffn_bias = "needed"

    def declare_ends(self, w: Weights) -> None:
        self.tok_norm = self.norm(w, "token_embd_norm")
        super().declare_ends(w)

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.tok_norm(g, super().embed(g), "inp_norm", 0)
