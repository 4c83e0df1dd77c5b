"""Tiny models of Pocket TTS."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={**SIZES, "attention.layer_norm_epsilon": 1e-5},
        without=["*.attn_[qkv].bias"],
        gain={"token_embd.weight": 0.2, "*.attn_[qk].weight": 2},
        familiar=True,
    )
}
