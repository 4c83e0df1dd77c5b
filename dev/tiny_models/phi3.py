"""Tiny models of Phi 3."""

from dev.tiny_models import SIZES, Tiny

DENSE = {
    **SIZES,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,  # not used
    "rope.scaling.attn_factor": 1.2,
}

TINY = {
    "short": Tiny(
        keys=DENSE,
        without=["*.attn_qkv.bias", "rope_factors_long.weight"],
        keep=["*.attn_qkv.weight", "rope_factors_short.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        familiar=True,
    ),
    "long": Tiny(
        keys={**DENSE, "rope.scaling.original_context_length": 32, "rope.dimension_count": 12},
        without=["output.weight"],
        keep=["rope_factors_*"],
        gain={"token_embd.weight": 0.2, "*.attn_[qk].weight": 2},
        familiar=True,
    ),
}
