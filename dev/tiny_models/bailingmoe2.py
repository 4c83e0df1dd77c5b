"""Tiny models of Ling 2."""

from dev.tiny_models import MOE, Tiny

KEYS = {
    **MOE,
    "attention.key_length": 16,  # llama.cpp wants all heads to have n_embd channels
    "attention.value_length": 16,
    "leading_dense_block_count": 1,
    "expert_shared_feed_forward_length": 40,
    "expert_shared_count": 2,
    "expert_gating_func": 2,
    "expert_count": 8,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 8,
}

# A layer that is not run.
NEXTN = {
    "attn_norm": (64,), "attn_qkv": (64, 128), "attn_output": (64, 64), "attn_q_norm": (16,),
    "attn_k_norm": (16,), "ffn_norm": (64,), "ffn_gate_inp": (64, 8), "ffn_gate_exps": (64, 48, 8),
    "ffn_down_exps": (48, 64, 8), "ffn_up_exps": (64, 48, 8), "ffn_gate_shexp": (64, 80),
    "ffn_down_shexp": (80, 64), "ffn_up_shexp": (64, 80), "nextn.eh_proj": (128, 64),
    "nextn.enorm": (64,), "nextn.hnorm": (64,), "layer_output_norm": (64,),
}  # fmt: skip

TINY = {
    "moe": Tiny(
        keys={**KEYS, "block_count": 3, "nextn_predict_layers": 1},
        gain={"*.ffn_gate_inp.weight": 2},
        unread={f"blk.2.{stem}.weight": ne for stem, ne in NEXTN.items()},
        familiar=True,
    )
}
