"""Qwen1.5 and 2 with mixture of experts, and a gated shared expert (models/qwen2moe.cpp)."""

from __future__ import annotations

from ggml_py.ops import div, silu
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.blocks.experts import UNNORMED, UNSCALED, Experts, SharedExperts
from llama_py.gguf.keys import number
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.weights import Weights


class Qwen2MoeHParams(ExpertHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)


class Qwen2Moe(Decoder):
    arch = "qwen2moe"
    HParams = Qwen2MoeHParams
    hp: Qwen2MoeHParams
    sizes = {24: "A2.7B", 28: "57B.A14B"}
    names = {
        "shared_expert_gate": "ffn_shexp_gate_inp",
        "ffn_shexp_gated": "ffn_shexp_out",
        "shared_expert_gate_sigmoid": "ffn_shexp_gate",
    }

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        experts = Experts(w, hp, hp.n_ff_exp[il], experts=UNSCALED, weighing=UNNORMED)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp),
            w.norm("ffn_norm", hp.n_embd),
            DividedGate(w, hp, experts, hp.n_ff_shexp, gated=True, scaled=False),
        )


class DividedGate(SharedExperts):
    """The sigmoid of x is silu(x) / x."""

    parts_keep = None

    def activate_gate(self, gate: Tensor) -> Tensor:
        return div(silu(gate), gate)
