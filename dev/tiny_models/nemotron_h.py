"""Tiny models of Nemotron-H."""

from dev.tiny_models import Tiny

# Layers: a state space, attention, a feed-forward.
KEYS = {
    "block_count": 3,
    "embedding_length": 64,
    "feed_forward_length": [0, 0, 96],
    "attention.head_count": 4,
    "attention.head_count_kv": [0, 2, 0],
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
    "ssm.group_count": 2,
}
GAIN = {"*.attn_[qkv].weight": 1.5}

TINY = {"dense": Tiny(keys=KEYS, gain=GAIN, familiar=True)}
