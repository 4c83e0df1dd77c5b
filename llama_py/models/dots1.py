"""dots.llm1: experts after the first layers, with shared experts; queries and keys are normed head
by head (models/dots1.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.qwen3 import Qwen3
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class Dots1HParams(LeadingDenseHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Dots1(Qwen3):
    """Here there may be fewer heads of keys than of queries; llama.cpp refuses that."""

    arch = "dots1"
    HParams = Dots1HParams
    hp: Dots1HParams
    sizes = {62: "142B"}
    reranks = False

    def feed_forward(self, w: Weights, il: int) -> Block:
        return expert_layer(w, self.hp, il)
