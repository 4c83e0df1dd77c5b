"""Tiny models of GroveMoE."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "expert_count": 8,
            "expert_chunk_feed_forward_length": 32,
            "expert_group_scale": 0.5,
            "experts_per_group": 2,
            "attention.layer_norm_rms_epsilon": 1e-6,
        },
        gain={"*.ffn_gate_inp.weight": 2, "*_chexps.weight": 3},
    )
}
