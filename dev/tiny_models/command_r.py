"""Tiny models of Command R."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5, "logit_scale": 0.3},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
