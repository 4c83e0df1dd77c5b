"""Tiny models of Gemma 2."""

from dev.tiny_models import WIDE, Tiny

# Every other layer attends to 12 tokens only. Caps are near the values that they limit.
DENSE = {
    **WIDE,
    "block_count": 3,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 4.0,
}

TINY = {
    "dense": Tiny(
        keys=DENSE, without=["output.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_[qk].weight": 2},
    ),
    "bases": Tiny(
        keys={**DENSE, "rope.freq_base": 1e6, "rope.freq_base_swa": 5e3, "block_count": 4,
              "attention.sliding_window_pattern": [0, 1, 1, 0]},
        without=["*.bias", "output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_qkv.weight": 2},
    ),
}  # fmt: skip
