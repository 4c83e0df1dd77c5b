"""Tiny models of Jais 2."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_epsilon": 1e-5},
        gain={"*.attn_[qk].weight": 2, "*.ffn_down.weight": 2},
        familiar=True,
    )
}
