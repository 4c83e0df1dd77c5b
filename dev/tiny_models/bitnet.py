"""Tiny models of BitNet."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-5},
        without=["output.weight"],
        gain={"token_embd.weight": 0.3, "*.attn_[qk].weight": 2},
    )
}
