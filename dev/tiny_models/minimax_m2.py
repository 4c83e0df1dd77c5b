"""Tiny models of MiniMax M2."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "expert_gating_func": 2,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": 16,
        },
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
