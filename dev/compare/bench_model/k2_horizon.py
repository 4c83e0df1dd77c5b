"""K2 Horizon, about one billion weights or fewer."""

from dev.compare.bench_model.declared import EXPERTS, newest

SIZES = newest(
    __name__,
    EXPERTS,
    {
        "leading_dense_block_count": 1,
        "expert_shared_count": 1,
        "expert_shared_feed_forward_length": 512,
        "expert_gating_func": 2,
        "expert_weights_norm": True,
        "expert_weights_scale": 1.5,
        "attention.group_norm_groups": 4,
        "attention.value_expert_count": 8,
        "attention.value_expert_used_count": 2,
    },
)
