"""Tiny models of Hunyuan with mixture of experts."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "expert_shared_feed_forward_length": 80,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        gain={"*.ffn_gate_inp.weight": 2, "*_norm.weight": 2},
        familiar=True,
    )
}
