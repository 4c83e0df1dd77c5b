"""Tiny models of Kimi Linear."""

from dev.tiny_models import Tiny

# Layers: delta net with dense feed-forward, then latent attention and delta net with experts.
TINY = {
    "moe": Tiny(
        keys={
            "block_count": 3,
            "leading_dense_block_count": 1,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "expert_feed_forward_length": 48,
            "expert_count": 6,
            "expert_used_count": 3,
            "expert_shared_count": 2,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.446,
            "attention.head_count": 2,
            "attention.head_count_kv": [0, 1, 0],
            "attention.key_length": 48,
            "attention.value_length": 32,
            "attention.key_length_mla": 40,
            "attention.value_length_mla": 24,
            "attention.kv_lora_rank": 32,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": 16,
            "ssm.conv_kernel": 4,
            "kda.head_dim": 32,
        },
        without=["*.attn_q_a*", "*.attn_[qkv].bias"],
        gain={"*.attn_[qkv].weight": 2, "*.ssm_dt.bias": 3},
        prompt=72,
    )
}
