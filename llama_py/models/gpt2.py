"""GPT-2: learned positions, norms and matrices with biases (models/gpt2.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.learned_positions import LearnedPositions
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.layer_norm import LayerNormDecoder
from llama_py.weights import Weights


class Gpt2(LayerNormDecoder):
    arch = "gpt2"
    sizes = {12: "0.1B", 24: "0.4B", 36: "0.8B", 48: "1.5B"}
    qkv_bias = out_bias = ffn_bias = "needed"

    def declare_ends(self, w: Weights) -> None:
        weight = w.tensor("position_embd.weight", self.hp.n_embd, self.hp.n_ctx_train)
        self.positions = LearnedPositions(weight)
        super().declare_ends(w)

    def embed(self, g: GraphBuilder) -> Tensor:
        return self.positions(g, super().embed(g))
