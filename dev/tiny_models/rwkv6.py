"""Tiny models of RWKV-6."""

from dev.tiny_models import Tiny

KEYS = {
    "block_count": 3,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 0,
    "attention.layer_norm_epsilon": 1e-5,
    "wkv.head_size": 16,
    "time_mix_extra_dim": 8,
    "time_decay_extra_dim": 12,
    "rescale_every_n_layers": 2,
}
MEAN = {
    "*_lerp_*": 0.5,
    "*.time_mix_decay.weight": -1.0,
    "*.time_mix_first.weight": 0.5,
    "*.time_mix_ln.weight": 1.0,
}

TINY = {
    "fused": Tiny(keys=KEYS, mean=MEAN),
    # like older files: one tensor per mixture, without rescaling
    "parts": Tiny(keys=KEYS | {"rescale_every_n_layers": 0}, without=["*_lerp_fused.*"], mean=MEAN),
}
