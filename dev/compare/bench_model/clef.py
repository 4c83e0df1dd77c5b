"""Clef, about one billion weights or fewer."""

from dev.compare.bench_model.declared import newest

SIZES = newest(
    __name__,
    {
        "attention.layer_norm_epsilon": 1e-5,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 2048,
        "ssm.state_size": 128,
        "ssm.time_step_rank": 16,
        "ssm.group_count": 8,
        "decision.head_count": 16,
        "decision.routing_block_count": 2,
        "decision.block_count": 1,
    },
)
