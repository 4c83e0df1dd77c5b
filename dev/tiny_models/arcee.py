"""Tiny models of Arcee AFM."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-5},
        gain={"*.attn_[qk].weight": 2, "*.ffn_up.weight": 1.5},
        familiar=True,
    )
}
