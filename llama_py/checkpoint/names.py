"""Modules of checkpoints and the tensors of GGUF files, for names that many models share.

`{}` is the number of the layer. A model's own table extends or replaces these.
"""

from __future__ import annotations

from collections.abc import Mapping

Names = Mapping[str, str]


def name_layers(path: str, modules: Names) -> dict[str, str]:
    """Return the names of modules in each layer, by path, and of their tensors."""
    return {f"{path}.{module}": f"blk.{{}}.{tensor}" for module, tensor in modules.items()}


ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
FEED_FORWARD = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PRE_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
MODEL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYERS = "model.layers.{}"
LLAMA = {**MODEL, **name_layers(LAYERS, {**PRE_NORMS, **ATTENTION, **FEED_FORWARD})}
