"""Tiny models of QRWKV."""

from dev.tiny_models import Tiny
from dev.tiny_models.rwkv6 import MEAN

KEYS = {
    "block_count": 3,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "wkv.head_size": 16,
    "time_mix_extra_dim": 8,
    "time_decay_extra_dim": 12,
    "token_shift_count": 1,
}

# one sequence: llama.cpp keeps the wrong tokens of several
TINY = {
    "dense": Tiny(
        keys=KEYS,
        mean=MEAN | {"*.time_mix_decay.weight": -2.5},
        gain={"*.time_mix_output.weight": 3},
        sequences=1,
    )
}
