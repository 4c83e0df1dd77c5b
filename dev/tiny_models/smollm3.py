"""Tiny models of SmolLM3."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6, "block_count": 4},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
