"""Tiny models of Nemotron."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8},
        gain={"*.attn_[qk].weight": 2, "*.ffn_down.weight": 2},
        familiar=True,
    )
}
