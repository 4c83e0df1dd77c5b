"""Tiny models of Qwen3."""

from dev.tiny_models import WIDE, Tiny
from dev.tiny_models._hadamard import ATTENTION, FFN, folded_keys

DENSE = {
    **WIDE,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
}

TINY = {
    "dense": Tiny(keys=DENSE, without=["*.bias"]),
    "hadamard": Tiny(
        keys={**DENSE, **folded_keys([[*ATTENTION, *FFN]] * 2, [64, 96, 128])},
        without=["*.bias"],
        newest=True,
    ),
}
