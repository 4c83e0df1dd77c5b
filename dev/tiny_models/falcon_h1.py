"""Tiny models of Falcon-H1."""

from dev.tiny_models import WIDE, Tiny

KEYS = {
    **WIDE,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.dimension_count": 24,
    "rope.freq_base": 1e5,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
    "ssm.group_count": 2,
}

TINY = {
    "dense": Tiny(keys=KEYS, without=["*.attn_output.bias"]),
    # without optional tensors, and with a tied head
    "plain": Tiny(
        keys=KEYS,
        without=["*.attn_*.bias", "*.ffn_*.bias", "*.ssm_norm.*", "*.scale", "output.weight"],
        gain={"token_embd.weight": 0.4},
    ),
}
