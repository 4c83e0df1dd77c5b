"""Tiny models of Orion."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
