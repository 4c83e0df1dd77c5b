"""Tiny models of MiniCPM."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-5, "logit_scale": 0.25},
        gain={"token_embd.weight": 0.1},
        familiar=True,
    )
}
