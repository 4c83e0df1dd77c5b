"""Tiny models of StableLM."""

from llama_py.models.tiny import Tiny

DENSE = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.dimension_count": 4,
}

TINY = {
    "serial": Tiny(keys=DENSE, without=["*.attn_[qk]_norm.*"], gain={"*.attn_[qk].weight": 1.5}),
    "parallel": Tiny(keys=DENSE, without=["*.bias", "*.ffn_norm.*"]),
}
