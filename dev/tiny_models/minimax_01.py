"""Tiny models of MiniMax-Text-01."""

from dev.tiny_models import EXPERTS, WIDE, Tiny

# Layers: linear attention, attention, linear attention.
TINY = {
    "moe": Tiny(
        keys={
            **WIDE,
            **EXPERTS,
            "block_count": 3,
            "full_attention_interval": 2,
            "residual_scale": 1.5,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": 16,
        },
        gain={"*.attn_[qk].weight": 2, "*.attn_qkv.weight": 2},
        prompt=72,
    )
}
