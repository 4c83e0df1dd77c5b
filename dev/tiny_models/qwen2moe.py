"""Tiny models of Qwen1.5 and 2 with mixture of experts."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **EXPERTS,
            **SIZES,
            "expert_shared_feed_forward_length": 80,
            "attention.layer_norm_rms_epsilon": 1e-6,
        },
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
