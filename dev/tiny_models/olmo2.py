"""Tiny models of OLMo 2 and 3."""

from dev.tiny_models import SIZES, Tiny

DENSE = {**SIZES, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 5e5}

TINY = {
    "dense": Tiny(keys=DENSE),
    # Every other layer attends to more than 12 tokens, and only its RoPE is scaled.
    "windows": Tiny(
        keys={
            **DENSE,
            "block_count": 4,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": 2,
            "rope.freq_base_swa": 1e3,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.attn_factor": 1.2,
            "rope.scaling.original_context_length": 32,
        },
        without=["*.bias"],
        keep=["*.attn_qkv.weight"],
    ),
}
