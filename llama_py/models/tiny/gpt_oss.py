"""Tiny models of gpt-oss."""

from llama_py.models.tiny import Tiny

TINY = {
    "moe": Tiny(
        keys={
            "block_count": 2,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "expert_feed_forward_length": 48,
            "expert_count": 6,
            "expert_used_count": 3,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 64,
        },
        gain={"*.attn_[qk].weight": 2},
    )
}
