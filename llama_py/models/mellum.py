"""Mellum: Qwen3's attention and experts, in most layers sliding-window attention with unscaled
RoPE; a NextN layer that drafts, like in llama.cpp b11739 (models/mellum.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import QKV, Attention, Projections, head_norms
from llama_py.blocks.experts import GATING_FUNCS, Experts, Routing, Weighing
from llama_py.gguf.keys import Keys, flag, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.models.qwen3moe import Qwen3Moe, Qwen3MoeHParams
from llama_py.models.trunks.decoder import Block, Layer
from llama_py.models.trunks.nextn import EarlyDrafter, NextN, NextNEnds
from llama_py.models.trunks.unscaled_windows import UnscaledWindows
from llama_py.weights import Weights

DRAFT_NAMES_MELLUM = {
    "mtp_attn_residual": "mtp_ffn_inp",
    "mtp_attn_post_norm": "mtp_ffn_norm",
    "mtp_post_ffn": "mtp_ffn_out",
    **{x: f"mtp_{x}" for x in ("attn_norm", "Qcur_normed", "Kcur_normed", "ffn_moe_out")},
}


class MellumHParams(Qwen3MoeHParams, UnscaledWindows):
    whole_rope = True
    expert_gating_func: int = uint("expert_gating_func", 1, most=len(GATING_FUNCS))
    expert_weights_norm: bool = flag("expert_weights_norm", True)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.expert_gating_func == 0:  # saved by a llama.cpp that did not read these keys
            self.expert_gating_func, self.expert_weights_norm = 1, True


class DraftProjections(Projections):
    """Projections with another name for values."""

    def name_heads(self, g: GraphBuilder, qkv: QKV, il: int) -> QKV:
        super().name_heads(g, qkv, il)
        g.cb(qkv.v, "mtp_Vcur", il)
        return qkv


class MellumNextN(NextN):
    tokens_first = True


class Mellum(EarlyDrafter, Qwen3Moe):
    arch = "mellum"
    HParams = MellumHParams
    hp: MellumHParams
    sizes = {28: "12B.A2.5B"}
    layer_sum = "ffn_out"
    draft_names = DRAFT_NAMES_MELLUM
    nextn = MellumNextN
    nextn_ends = NextNEnds(scaled=False, head_scaled=False)

    def nextn_layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        attention = Attention(
            w,
            hp,
            qkv=DraftProjections(w, hp.n_embd, hp.layers[il]),
            norms=head_norms(w, hp),
            name="mtp_attn_out",
            turned=("mtp_Qcur", "mtp_Kcur"),
        )
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            attention,
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il),
        )

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        return Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            routing=Routing(GATING_FUNCS[hp.expert_gating_func - 1]),
            weighing=Weighing(hp.expert_weights_norm),
        )
