"""Checkpoints of AFMoE (conversion/afmoe.py)."""

from __future__ import annotations

from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import EXPERTS, HEAD_NORMS, LLAMA, POST_NORMS, SHARED_EXPERTS


class AfmoeConverter(LlamaConverter):
    arch = "afmoe"
    classes = ("AfmoeForCausalLM",)
    names = LLAMA
    layers = {
        **POST_NORMS,
        **HEAD_NORMS,
        **EXPERTS,
        **SHARED_EXPERTS,
        "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
        "self_attn.gate_proj": "attn_gate",
        "mlp.router.gate": "ffn_gate_inp",
        "mlp.expert_bias": "exp_probs_b",
    }
    suffixes = {".expert_bias": ".bias"}
    permutes = False
    parts = ("gate_proj", "up_proj", "down_proj")
    own_keys = (
        ("expert_shared_count", "u32", ("num_shared_experts",)),
        ("expert_feed_forward_length", "u32", ("moe_intermediate_size",)),
        ("leading_dense_block_count", "u32", ("num_dense_layers",)),
        ("expert_weights_norm", "bool", ("route_norm",)),
        ("expert_weights_scale", "f32", ("route_scale",)),
        ("attention.sliding_window", "u32", ("sliding_window",)),
    )
