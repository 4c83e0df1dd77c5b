"""Tiny models of Maincoder."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-6}, gain={"*.attn_[qk].weight": 2}
    )
}
