"""Tiny models of LLaDA."""

from llama_py.models.tiny import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 2,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": 16,
        },
        without=["*.bias"],
    )
}
