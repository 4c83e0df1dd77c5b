"""Tiny models of Qwen2."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6},
        gain={"*.attn_[qk].weight": 2},
    )
}
