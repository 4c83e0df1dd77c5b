"""Tiny models of Jais."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5, "attention.max_alibi_bias": 8.0},
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 2},
        familiar=True,
    )
}
