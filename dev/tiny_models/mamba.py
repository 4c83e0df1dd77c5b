"""Tiny models of Mamba."""

from dev.tiny_models import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 2,
            "embedding_length": 64,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.time_step_rank": 4,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        gain={"*.ssm_x.weight": 2, "*.ssm_out.weight": 1.5},
    )
}
