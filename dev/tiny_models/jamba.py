"""Tiny models of Jamba."""

from dev.tiny_models import SIZES, Tiny

# Layers: a state space, attention with experts, a state space with experts.
TINY = {
    "moe": Tiny(
        keys={
            **SIZES,
            "block_count": 3,
            "attention.head_count_kv": [0, 2, 0],
            "attention.layer_norm_rms_epsilon": 1e-6,
            "expert_count": 6,
            "expert_used_count": 3,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.time_step_rank": 8,
        },
        without=["blk.0.ffn_gate_inp.*"],
        familiar=True,
        gain={"*.attn_[qkv].weight": 2, "*.ffn_down*": 3, "*.ssm_out.weight": 0.5},
    )
}
