"""Tiny models of EmbeddingGemma."""

from dev.tiny_models import WIDE, Tiny

KEYS = {
    **WIDE,
    "block_count": 3,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": 3,
    "rope.freq_base": 1e6,
}

TINY = {
    "dense": Tiny(
        keys={
            **KEYS,
            "dense_2_feat_in": 64,
            "dense_2_feat_out": 96,
            "dense_3_feat_in": 96,
            "dense_3_feat_out": 64,
        },
        without=["*.bias"],
        gain={"token_embd.weight": 0.2},
        pooling=["none", "mean"],
    ),
    "plain": Tiny(
        keys=KEYS,
        without=["*.bias", "dense_*"],
        gain={"token_embd.weight": 0.2},
        familiar=True,
        pooling=["mean"],
    ),
}
