"""Gemma 2: every other layer uses sliding-window attention; scores and logits are soft-capped
(models/gemma2.cpp)."""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import ScaledAttention
from llama_py.gguf.keys import base, divisor, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.gemma import GemmaDecoder, PostNormHParams
from llama_py.models.trunks.scaled_windows import ScaledWindows
from llama_py.weights import Weights


class Gemma2HParams(ScaledWindows, PostNormHParams):
    n_pattern = 2
    n_layer_27b = 46
    n_swa: int = uint("attention.sliding_window", 4096)
    rope_freq_base_swa: float = base("rope.freq_base_swa", lambda hp: hp.rope_freq_base_train)
    attn_logit_softcap: float = divisor("attn_logit_softcapping", 50.0)
    final_logit_softcap: float = divisor("final_logit_softcapping", 30.0)


class Gemma2(GemmaDecoder):
    """A window or a cap of 0 is disabled; llama.cpp divides by such a cap."""

    arch = "gemma2"
    HParams = Gemma2HParams
    sizes = {26: "2B", 42: "9B", 46: "27B"}
    hp: Gemma2HParams
    post_ffn_il = (False, False)

    def embed(self, g: GraphBuilder) -> Tensor:
        return g.cb(scale(super().embed(g), self.hp.n_embd**0.5), "inp_scaled")

    def layer(self, w: Weights, il: int) -> Layer:
        return self.layer_around(w, il, ScaledAttention(w, self.hp))
