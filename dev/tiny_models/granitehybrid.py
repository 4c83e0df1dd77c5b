"""Tiny models of Granite 4."""

from dev.tiny_models import SIZES, Tiny
from dev.tiny_models.granite import SCALES

# Layers: a state space, attention, a state space.
KEYS = {
    **SIZES,
    **SCALES,
    "block_count": 3,
    "attention.head_count_kv": [0, 2, 0],
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
}
MOE = {
    **KEYS,
    "expert_count": 5,
    "expert_used_count": 2,
    "expert_shared_feed_forward_length": 64,
    "rope.scaling.finetuned": False,
}
GAIN = {"token_embd.weight": 0.4, "*.attn_[qkv].weight": 1.5, "*.ffn_down*": 2}

TINY = {
    "dense": Tiny(keys=KEYS, without=["output.weight"], gain=GAIN, familiar=True),
    # Experts, one for all tokens; positions do not count.
    "moe": Tiny(keys=MOE, without=["*.attn_*.bias", "rope_freqs.weight"], gain=GAIN, familiar=True),
}
