"""Tiny models of gpt-oss."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": 12,
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 64,
        },
        gain={"*.attn_[qk].weight": 2},
    )
}
