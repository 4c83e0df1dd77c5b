"""Tiny models of StableLM."""

from dev.tiny_models import SIZES, Tiny

DENSE = {**SIZES, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 4}

TINY = {
    "serial": Tiny(keys=DENSE, without=["*.attn_[qk]_norm.*"], gain={"*.attn_[qk].weight": 1.5}),
    "parallel": Tiny(keys=DENSE, without=["*.bias", "*.ffn_norm.*"]),
}
