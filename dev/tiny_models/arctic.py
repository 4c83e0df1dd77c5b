"""Tiny models of Arctic."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **SIZES,
            "expert_count": 6,
            "expert_used_count": 2,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        gain={"*.ffn_gate_inp.weight": 2},
    )
}
