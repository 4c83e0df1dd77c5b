"""Tiny models of Qwen3-VL."""

from dev.tiny_models import WIDE, Tiny

KEYS = {
    **WIDE,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 5e6,
    "rope.dimension_sections": [6, 5, 5, 0],
    "n_deepstack_layers": 1,
}

TINY = {"dense": Tiny(keys=KEYS, without=["*.bias"])}
