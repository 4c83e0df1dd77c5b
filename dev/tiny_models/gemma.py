"""Tiny models of Gemma."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-6},
        without=["output.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_[qk].weight": 2},
        familiar=True,
    )
}
