"""Tiny models of DeepSeek V2, V3 and their kin."""

from dev.tiny_models import Tiny

# Latent attention and experts after a dense layer; long contexts.
LATENT = {
    "leading_dense_block_count": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "expert_feed_forward_length": 48,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.key_length": 48,
    "attention.value_length": 32,
    "attention.key_length_mla": 40,
    "attention.value_length_mla": 24,
    "attention.q_lora_rank": 24,
    "attention.kv_lora_rank": 32,
}
YARN = {
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_log_multiplier": 0.1,
}

SIZES = {"block_count": 2, **LATENT, **YARN}

TINY = {
    "moe": Tiny(keys=SIZES, without=["*.attn_q.weight"]),
    # a NextN layer at the end
    "mtp": Tiny(
        keys=SIZES | {"block_count": 3, "nextn_predict_layers": 1},
        without=["*.attn_q.weight"],
        familiar=True,
    ),
}
