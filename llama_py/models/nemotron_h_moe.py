"""Nemotron-H with experts, and a NextN layer that drafts: attention and experts in one
(models/nemotron-h-moe.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention
from llama_py.graph.builder import GraphBuilder
from llama_py.models.nemotron_h import NemotronH
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.nextn import DRAFT_NAMES, DraftingDecoder, EarlyNextN, NextNEnds
from llama_py.weights import Weights

NAMES = {key: DRAFT_NAMES[key] for key in ("attn_norm", "ffn_out", "ffn_moe_out", "ffn_shexp")} | {
    "attn_out": "mtp_attn_out",
    "ffn_moe_logits": "mtp_ffn_moe_logits",
    "mtp_shared_head_norm": "",
}


class SumNextN(EarlyNextN):
    """NextN layer that selects outputs from the sum after attention, not from its terms."""

    def add_residual(
        self, g: GraphBuilder, cur: Tensor, residual: Tensor, il: int, early: bool
    ) -> Tensor:
        cur = super().add_residual(g, cur, residual, il, False)
        return g.outputs(cur)[0] if early else cur


class NemotronHMoe(NemotronH, DraftingDecoder):
    arch = "nemotron_h_moe"
    draft_names = NAMES
    nextn = SumNextN
    nextn_ends = NextNEnds(norm_kind="layer")

    def nextn_layer(self, w: Weights, il: int) -> Layer:
        n_embd = self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            Attention(w, self.hp, out_bias=True, name="attn_out"),
            w.norm("post_attention_norm", n_embd),
            self.experts(w, il),
        )
