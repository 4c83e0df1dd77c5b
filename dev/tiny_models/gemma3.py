"""Tiny models of Gemma 3."""

from dev.tiny_models import WIDE, Tiny

# Every third layer sees more than 12 tokens.
TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "block_count": 3,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "final_logit_softcapping": 30.0,
        },
        without=["*.bias", "output.weight"],
        gain={"token_embd.weight": 0.2},
    )
}
