"""Tiny models of ERNIE 4.5."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={**WIDE, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 5e5},
        without=["output.weight", "*.attn_output.bias"],
        gain={"token_embd.weight": 0.4, "*.attn_[qk].weight": 2},
        familiar=True,
    )
}
