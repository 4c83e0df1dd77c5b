"""Tiny models of Qwen3."""

from llama_py.models.tiny import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 2,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.head_count_kv": 1,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        },
        without=["*.bias"],
    )
}
