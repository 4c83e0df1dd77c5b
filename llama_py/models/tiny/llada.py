"""Tiny models of LLaDA."""

from llama_py.models.tiny import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 16},
        without=["*.bias"],
    )
}
