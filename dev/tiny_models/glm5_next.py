"""Tiny models of GLM5-Next."""

from dev.tiny_models import Tiny

# Layers: delta net with dense feed-forward; then with experts attention, a delta net, attention to
# the second layer's selection. Pools of 4 tokens; a token attends to 3 pools.
KEYS = {
    "block_count": 4,
    "leading_dense_block_count": 1,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "expert_feed_forward_length": 48,
    "expert_count": 6,
    "expert_used_count": 3,
    "expert_shared_count": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "swiglu_clamp_exp": [0.0, 0.5, 0.0, 0.4],
    "swiglu_clamp_shexp": [0.3, 0.0, 0.6, 0.5],
    "attention.head_count": 2,
    "attention.head_count_kv": [0, 1, 0, 1],
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.key_length_mla": 32,
    "attention.value_length_mla": 24,
    "attention.q_lora_rank": 48,
    "attention.kv_lora_rank": 64,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-6,
    "attention.indexer.head_count": 16,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 12,
    "attention.indexer.kpool": 4,
    "attention.indexer.types": [0, 1, 0, 0],
    "rope.dimension_count": 0,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 32,
    "kda.gate_lower_bound": -5.0,
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 3,
    "hyper_connection.epsilon": 1e-6,
}
GAIN = {
    "*.attn_[qkv].weight": 2,
    "*.ssm_dt.bias": 3,
    "*.attn_q_b.weight": 2,
    "*.attn_k_b.weight": 2,
    "*.indexer*": 2,
}

# llama.cpp 0.5.0 reads only the chosen cells in small ubatches.
GATHERED = {"pool_attention": "gathered"}
BOUNDS = ("kda.gate_lower_bound", "swiglu_clamp_exp", "swiglu_clamp_shexp")
LEFT_OUT = (*BOUNDS, "attention.indexer.types")

NEXTN = KEYS | {
    "block_count": 5,
    "nextn_predict_layers": 1,
    "swiglu_clamp_exp": [0.0, 0.5, 0.0, 0.4, 0.6],
    "swiglu_clamp_shexp": [0.3, 0.0, 0.6, 0.5, 0.7],
    "attention.head_count_kv": [0, 1, 0, 1, 1],
}

TINY = {
    "moe": Tiny(keys=KEYS, without=["*.attn_[qkv].bias"], gain=GAIN, prompt=72, forms=GATHERED),
    # indexers in all layers, decays and gates without bounds
    "unbounded": Tiny(
        keys={k: v for k, v in KEYS.items() if k not in LEFT_OUT},
        without=["*.attn_[qkv].bias"],
        gain=GAIN,
        familiar=True,
        forms=GATHERED,
    ),
    # a NextN layer with its own head, norm and embeddings
    "mtp": Tiny(
        keys=NEXTN, without=["*.attn_[qkv].bias"], gain=GAIN, prompt=72, newest=True, familiar=True
    ),
    # a NextN layer with the trunk's
    "shared": Tiny(
        keys=NEXTN,
        without=["*.attn_[qkv].bias", "*.nextn.shared_*", "*.nextn.embed_*"],
        gain=GAIN,
        newest=True,
        familiar=True,
    ),
}
