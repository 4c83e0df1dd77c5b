"""Tiny models of Mellum."""

from dev.tiny_models import MOE, Tiny

# Every other layer sees more than 12 tokens, and only its positions are scaled.
TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 2,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
        without=["*.bias"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
