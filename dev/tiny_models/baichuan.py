"""Tiny models of Baichuan; with 32 or 40 layers positions would matter."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-6},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
