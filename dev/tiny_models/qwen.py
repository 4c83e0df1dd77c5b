"""Tiny models of Qwen."""

from dev.tiny_models import CHANNELS, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **CHANNELS,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.head_count": 4,
            "rope.dimension_count": 8,
        },
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        familiar=True,
    )
}
