"""Gemma 3: most layers use sliding-window attention; each block's result is normed again
(models/gemma3.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import ScaledAttention, head_norms
from llama_py.gguf.keys import divisor
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.gemma import GemmaDecoder, PostNormHParams
from llama_py.weights import Weights


class Gemma3HParams(PostNormHParams):
    n_pattern = 6
    n_layer_27b = 62
    final_logit_softcap: float = divisor("final_logit_softcapping", 0.0)


class Gemma3(GemmaDecoder):
    arch = "gemma3"
    HParams = Gemma3HParams
    sizes = {18: "270M", 26: "1B", 32: "8B", 34: "4B", 48: "12B", 62: "27B"}
    hp: Gemma3HParams

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(g.scale_tokens(super().embed(g), self.hp.n_embd**0.5), "inp_scaled")

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        attention = ScaledAttention(w, hp, norms=head_norms(w, hp))
        return self.layer_around(w, il, attention)
