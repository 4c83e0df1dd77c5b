"""Tiny models of OLMoE."""

from dev.tiny_models import CHANNELS, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **CHANNELS,
            "expert_count": 6,
            "expert_used_count": 3,
            "attention.head_count": 4,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        gain={"*.ffn_gate_inp.weight": 2, "*.ffn_down_exps.weight": 2},
        familiar=True,
    )
}
