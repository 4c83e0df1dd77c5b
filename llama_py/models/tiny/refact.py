"""Tiny models of Refact."""

from llama_py.models.tiny import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
