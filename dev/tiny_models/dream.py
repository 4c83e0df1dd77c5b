"""Tiny models of Dream."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6},
        without=["output.*"],
        gain={"token_embd.weight": 0.3, "*.attn_[qk].weight": 2},
        familiar=True,
    )
}
