"""Tiny models of Falcon."""

from dev.tiny_models import SIZES, Tiny

FALCON = {**SIZES, "attention.layer_norm_epsilon": 1e-5}

TINY = {
    "dense": Tiny(
        keys=FALCON, without=["*.attn_norm_2.*"], keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5}, familiar=True,
    ),
    "norms": Tiny(
        keys=FALCON, without=["output.weight"], keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_qkv.weight": 1.5}, familiar=True,
    ),
}  # fmt: skip
