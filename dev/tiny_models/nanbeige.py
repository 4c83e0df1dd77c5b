"""Tiny models of Nanbeige."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "loops": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-6, "num_loops": 2},
        without=["*.bias", "*.scale", "output.weight"],
    )
}
