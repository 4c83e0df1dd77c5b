"""Tiny models of MPT."""

from dev.tiny_models import SIZES, Tiny

MPT = {**SIZES, "attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": 1.5}

TINY = {
    "alibi": Tiny(
        keys={**MPT, "attention.max_alibi_bias": 4.0},
        without=["*.bias", "*.attn_[qk]_norm.*", "position_embd.weight", "*.ffn.act.scales"],
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        familiar=True,
    ),
    "positions": Tiny(
        keys=MPT,
        without=["*.attn_[qk]_norm.*", "output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.2, "position_embd.weight": 2, "*.attn_qkv.weight": 1.5},
        mean={"*.ffn.act.scales": 0.5},
        familiar=True,
    ),
}
