"""Tiny models of Phi 3.5 with mixture of experts."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **SIZES,
            "expert_count": 6,
            "expert_used_count": 2,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.attn_factor": 1.2,
        },
        keep=["rope_factors_*"],
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
