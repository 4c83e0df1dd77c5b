"""Tiny models of Qwen3 with mixture of experts."""

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
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        },
        without=["*.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
    )
}
