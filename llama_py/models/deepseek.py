"""DeepSeek with experts, first version: experts after dense layers, with shared experts
(models/deepseek.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class DeepseekHParams(LeadingDenseHParams):
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = whole_rope = True
    expert_weights_norm = False
    expert_gating_func = 1
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Deepseek(Decoder):
    arch = "deepseek"
    HParams = DeepseekHParams
    hp: DeepseekHParams

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        return {1408: "16B", 1792: "20B"}.get(hp.n_ff_exp[0], "?B")

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il, bias="no"),
        )
