"""Tiny models of Nemotron."""

from llama_py.models.tiny import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 8},
        gain={"*.attn_[qk].weight": 2, "*.ffn_down.weight": 2},
        familiar=True,
    )
}
