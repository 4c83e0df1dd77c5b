"""Tiny models of GPT-2."""

from dev.tiny_models import Tiny

DENSE = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
}

TINY = {
    "dense": Tiny(
        keys=DENSE,
        without=["output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.2, "position_embd.weight": 2, "*.attn_qkv.weight": 1.5},
    ),
    "untied": Tiny(
        keys={**DENSE, "attention.head_count_kv": 2},
        without=["*.scale"],
        keep=["*.attn_qkv.weight"],
        gain={"position_embd.weight": 4},
    ),
}
