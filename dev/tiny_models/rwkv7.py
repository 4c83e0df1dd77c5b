"""Tiny models of RWKV-7."""

from dev.tiny_models import Tiny

# llama.cpp reads beyond the end of smaller heads.
KEYS = {
    "block_count": 2,
    "embedding_length": 128,
    "feed_forward_length": 96,
    "attention.head_count": 0,
    "attention.layer_norm_epsilon": 1e-5,
    "wkv.head_size": 64,
    "attention.decay_lora_rank": 12,
    "attention.iclr_lora_rank": 8,
    "attention.value_residual_mix_lora_rank": 10,
    "attention.gate_lora_rank": 14,
}
MEAN = {"*_lerp_*": 0.5, "*.time_mix_ln.weight": 1.0, "*.time_mix_k_[ka].weight": 1.0}
GAIN = {"*.time_mix_r_k.weight": 4}
# Not read in the first layer, which has no earlier value to add.
UNREAD = {
    "blk.0.time_mix_v0.weight": (128,),
    "blk.0.time_mix_v1.weight": (128, 8),
    "blk.0.time_mix_v2.weight": (8, 128),
}

TINY = {"dense": Tiny(keys=KEYS, mean=MEAN, gain=GAIN, unread=UNREAD)}
