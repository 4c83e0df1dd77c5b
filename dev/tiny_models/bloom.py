"""Tiny models of BLOOM."""

from dev.tiny_models import SIZES, Tiny

# Six heads: slopes are of two kinds where their number is no power of two.
TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "embedding_length": 96,
            "attention.head_count": 6,
            "attention.head_count_kv": 3,
            "attention.layer_norm_epsilon": 1e-5,
        },
        without=["output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_qkv.weight": 1.5},
    )
}
