"""Drafting with a NextN (MTP) layer: the next token from a token and the hidden state before it
(graph_mtp of models/qwen35.cpp, qwen35moe.cpp, qwen3next.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ggml_py.ops import add, concat, get_rows
from llama_py.inputs import InputEmbdH
from llama_py.models._hybrid import HybridGraph

# Trunk names of what the draft graph calls otherwise; "" leaves a tensor to its automatic name.
NAMES = {
    "Qcur_full": "mtp_Qcur_full",
    "Kcur_full": "",
    "Vcur_full": "",
    "Qcur_reshaped": "",
    "Qcur_normed": "mtp_Qcur_normed",
    "Qcur": "",
    "Kcur": "",
    "Kcur_normed": "mtp_Kcur_normed",
    "Vcur": "mtp_Vcur",
    "gate_view": "",
    "gate_reshaped": "mtp_gate",
    "attn_pregate": "mtp_attn_pregate",
    "gate_sigmoid": "",
    "attn_gated": "",
    "attn_output": "mtp_attn_out",
    "ffn_moe_out": "mtp_ffn_moe_out",
    "ffn_shexp": "mtp_ffn_shexp",
    "shared_expert_gate": "",
    "shared_expert_gate_sigmoid": "mtp_shared_expert_gate_sigmoid",
    "ffn_shexp_gated": "mtp_ffn_shexp_gated",
}


class NextNGraph(HybridGraph):
    """A mix-in for an architecture's trunk graph: its blocks, for the one layer after the trunk.

    selects_early   outputs are selected right after attention, not before the head
    """

    names: Mapping[str, str] = NAMES
    selects_early: ClassVar[bool] = False

    def build(self) -> None:
        il = self.n_layer
        layer = self.model.layers[il]
        inp = self.res.add_input(InputEmbdH(self.n_embd, self.n_tokens))
        tokens = layer.nextn_embed_tokens
        if self.ubatch.token is None:
            embd = inp.embd
        else:
            embd = get_rows(self.model.token_embd if tokens is None else tokens, inp.tokens)
        self.cb(embd, "mtp_tok_embd", il)
        inp_pos = self.build_inp_pos()
        inp_out_ids = self.build_inp_out_ids()
        inp_attn = self.build_attn_inp_kv()
        h_norm = self.cb(self.build_norm(inp.h, layer.nextn_hnorm, il), "mtp_hnorm", il)
        e_norm = self.cb(self.build_norm(embd, layer.nextn_enorm, il), "mtp_enorm", il)
        cur = self.cb(concat(e_norm, h_norm, 0), "mtp_concat", il)  # [2 * n_embd, n_tokens]
        residual = self.cb(self.build_mm(layer.nextn_eh_proj, cur), "mtp_eh_proj", il)
        cur = self.cb(self.build_norm(residual, layer.attn_norm, il), "mtp_attn_norm", il)
        cur = self.attention(cur, inp_attn, inp_pos, il)
        if self.selects_early:
            cur, residual = get_rows(cur, inp_out_ids), get_rows(residual, inp_out_ids)
        residual = self.cb(add(cur, residual), "mtp_attn_residual", il)
        cur = self.build_norm(residual, layer.post_attention_norm, il)
        cur = self.feed_forward(self.cb(cur, "mtp_attn_post_norm", il), il)
        cur = self.cb(add(self.cb(cur, "mtp_ffn_out", il), residual), "mtp_post_ffn", il)
        head_norm = layer.nextn_shared_head_norm
        cur = self.build_norm(cur, self.model.output_norm if head_norm is None else head_norm)
        self.res.t_h_nextn = self.cb(cur, "h_nextn")
        if not self.selects_early:
            cur = self.cb(get_rows(cur, inp_out_ids), "mtp_shared_head_norm")
        self.build_head(cur, layer.nextn_shared_head_head)  # [n_vocab, n_outputs]
