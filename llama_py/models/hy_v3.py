"""Hunyuan 3: layers with experts and a shared one among dense layers, a NextN layer that drafts
(models/hy-v3.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, head_norms
from llama_py.blocks.experts import (
    GATING_FUNCS,
    Experts,
    ExpertSet,
    Routing,
    SharedExperts,
    Weighing,
)
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, flag, number, uint
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.experts import ExpertHParams, skip_dense
from llama_py.models.trunks.nextn import DraftingDecoder, NextNEnds
from llama_py.weights import Weights

NAMES = {"Qcur_normed": "", "Kcur_normed": "", "ffn_shexp": "ffn_shared_out"}
DRAFT_NAMES = {
    **NAMES,
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_ffn_norm",
    "ffn_shexp": "mtp_ffn_shared_out",
    **{x: f"mtp_{x}" for x in ("attn_norm", "attn_out", "ffn_dense_out", "ffn_moe_out", "ffn_out")},
}


class HyV3HParams(ExpertHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    expert_gating_func: int = uint("expert_gating_func", 0, most=len(GATING_FUNCS))
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    expert_weights_norm: bool = flag("expert_weights_norm", False)

    def load(self, keys: Keys) -> None:
        shared = self.n_ff_shexp
        super().load(keys)
        self.n_ff_shexp = shared or self.n_ff_exp[0]
        number = self.expert_gating_func
        self.gating = GATING_FUNCS[number - 1] if number else "sigmoid"


class HyV3(DraftingDecoder):
    """Decoder with dense layers or experts, optionally shared experts, depending on the tensors."""

    arch = "hy_v3"
    HParams = HyV3HParams
    hp: HyV3HParams
    names = NAMES
    draft_names = DRAFT_NAMES
    sizes = {48: "30B.A3B"}
    nextn_ends = NextNEnds(scaled=False)

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp), turned=("", ""), name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        if not w.has("ffn_gate_inp.weight"):
            return FeedForward(w, hp.n_embd, hp.layers[il].n_ff, name="ffn_dense_out")
        skip_dense(w)
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=ExpertSet(merged=True),
            routing=Routing(gating=hp.gating, bias="optional", bias_name="exp_probs_b"),
            weighing=Weighing(hp.expert_weights_norm, hp.expert_weights_scale),
        )
        if not w.has("ffn_up_shexp.weight"):
            return experts
        return SharedExperts(w, hp, experts, hp.n_ff_shexp)
