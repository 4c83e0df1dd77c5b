"""Tiny models of PLaMo 2."""

from dev.tiny_models import CHANNELS, Tiny

# Layers: a state space, attention, a state space.
TINY = {
    "dense": Tiny(
        keys={
            **CHANNELS,
            "block_count": 3,
            "attention.head_count": 4,
            "attention.head_count_kv": [0, 2, 0],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 16,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 0,
        },
        without=["*.attn_qkv.scale"],  # llama.cpp omits it
        keep=["*.ssm_in.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        sequences=1,  # llama.cpp mixes the tokens of several
    )
}
