"""Tiny models of Granite."""

from dev.tiny_models import WIDE, Tiny

SCALES = {
    "attention.layer_norm_rms_epsilon": 1e-5,
    "logit_scale": 0.5,
    "residual_scale": 0.7,
    "embedding_scale": 1.5,
    "attention.scale": 0.25,
}

TINY = {
    "dense": Tiny(
        keys={**WIDE, **SCALES, "rope.freq_base": 1e6},
        without=["output.weight"],
        gain={"token_embd.weight": 0.2, "*.attn_[qk].weight": 1.5},
    ),
    # Embeddings have parts for two later layers.
    "parts": Tiny(
        keys={**WIDE, **SCALES, "block_count": 3, "deepstack_mapping": [-1, 2, 1]},
        without=["*.bias"],
        familiar=True,
    ),
    # Experts, one for all tokens; positions do not count.
    "moe": Tiny(
        keys={**WIDE, **SCALES, "expert_count": 5, "expert_used_count": 2,
              "expert_shared_feed_forward_length": 64, "rope.scaling.finetuned": False},
        without=["*.bias", "rope_freqs.weight"],
        familiar=True,
    ),
}  # fmt: skip
