"""Tiny models of DeepSeek-V4."""

from dev.tiny_models import Tiny

# Layers: only a window; compressed keys selected by an indexer; all compressed keys. A prompt of
# 140 tokens has one compressed key that all tokens attend to.
SIZES = {
    "block_count": 3,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "rope.dimension_count": 16,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.q_lora_rank": 48,
    "attention.sliding_window": 12,
    "attention.output_group_count": 2,
    "attention.output_lora_rank": 24,
    "attention.compress_ratios": [0, 4, 128],
    "attention.compress_rope_freq_base": 40000.0,
    "attention.indexer.head_count": 16,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 3,
    "expert_feed_forward_length": 48,
    "expert_count": 6,
    "expert_used_count": 3,
    "expert_shared_count": 1,
    "expert_gating_func": 4,
    "expert_weights_scale": 1.5,
    "expert_weights_norm": True,
    "swiglu_clamp_exp": [0.5, 0.4, 0.0],
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 3,
    "hyper_connection.epsilon": 1e-4,
    "hash_layer_count": 1,
}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
TABLE = {"*.ffn_gate_tid2eid.weight": 6}

WIDE = {"attention.key_length": 64, "attention.value_length": 64}
LIMITS = {"swiglu_clamp_shexp": [0.3, 0.0, 0.4]}

TINY = {
    # all keys are as wide as the indexer's, so that all are rotated
    "moe": Tiny(keys=SIZES | YARN | WIDE | LIMITS, table=TABLE, prompt=140),
    # a NextN layer at the end
    "mtp": Tiny(
        keys=SIZES
        | {
            "nextn_predict_layers": 1,
            "attention.compress_ratios": [4, 0, 0],
            "swiglu_clamp_exp": 0.5,
            "hash_layer_count": 0,
        },
        without=["*.exp_probs_b_vl.*"],
    ),
}
