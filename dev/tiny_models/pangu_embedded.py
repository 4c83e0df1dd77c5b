"""Tiny models of openPangu Embedded."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-6},
        without=["rope_freqs.weight"],
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
