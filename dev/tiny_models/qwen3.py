"""Tiny models of Qwen3."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "attention.head_count_kv": 1,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e6,
        },
        without=["*.bias"],
    )
}
