"""Tiny models of Talkie."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-5, "logit_scale": 2.5},
        gain={"*.attn_q_norm.weight": 2, "*.layer_output_scale.weight": 0.3},
        mean={"*.layer_output_scale.weight": 0.6, "*.attn_q_norm.weight": 1.5},
    )
}
