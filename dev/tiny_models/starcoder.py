"""Tiny models of StarCoder."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.head_count_kv": 1, "attention.layer_norm_epsilon": 1e-5},
        keep=["*.attn_qkv.weight"],
        gain={"position_embd.weight": 4, "*.attn_qkv.weight": 1.5},
        familiar=True,
    )
}
