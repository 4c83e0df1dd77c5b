"""Tiny models of ChatGLM."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": 8},
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        familiar=True,
    )
}
