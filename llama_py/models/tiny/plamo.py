"""Tiny models of PLaMo."""

from llama_py.models.tiny import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_rms_epsilon": 1e-5},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
