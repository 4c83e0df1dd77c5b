"""Tiny models of CodeShell."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5},
        without=["token_embd.weight"],
        gain={"output.weight": 2, "*.attn_[qk].weight": 2},
        familiar=True,
    )
}
