"""Tiny models of DeepSeek-V3.2."""

from llama_py.models.tiny import Tiny

# Layers: dense and with experts, each attending to 8 tokens; then one that drafts. With few heads
# more cells would have no score at all, and be chosen among by chance.
MOE = {
    "block_count": 3,
    "nextn_predict_layers": 1,
    "leading_dense_block_count": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "expert_feed_forward_length": 48,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 2,
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
    "attention.indexer.head_count": 12,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 8,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_log_multiplier": 0.1,
}

TINY = {
    "moe": Tiny(keys=MOE, gain={"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2}),
    # no scaling of positions, one head for trunk and drafts
    "plain": Tiny(
        keys={k: v for k, v in MOE.items() if not k.startswith("rope.scaling.")},
        without=["*.scale", "output.weight", "*.exp_probs_b.bias", "*.nextn.embed_*",
                 "*.nextn.shared_*"],
        gain={"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2, "token_embd.weight": 0.4},
    ),
}  # fmt: skip
