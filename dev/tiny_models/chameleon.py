"""Tiny models of Chameleon, which needs many tokens: most are of images.

One token at a time: llama.cpp omits image tokens from the first output only."""

from dev.tiny_models import SIZES, Tiny

KEYS = {
    **SIZES,
    "vocab_size": 8200,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e4,
}

TINY = {
    name: Tiny(
        keys={**KEYS, "swin_norm": name == "swin"},
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
        prompt=1,
        steps=20,
        sequences=1,
    )
    for name in ("plain", "swin")
}
