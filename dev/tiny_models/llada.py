"""Tiny models of LLaDA."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 16},
        without=["*.bias"],
    )
}
