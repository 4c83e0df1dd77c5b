"""Tiny models of InternLM 2."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
