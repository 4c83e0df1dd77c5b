"""Tiny models of ModernBERT."""

from typing import Any

from dev.tiny_models import Tiny

KEYS: dict[str, Any] = {
    "block_count": 4,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_epsilon": 1e-5,
    "attention.causal": False,
}
QKV = {"*.attn_qkv.weight": 2}

TINY = {
    "windows": Tiny(
        keys={
            **KEYS,
            "attention.sliding_window": 10,
            "rope.freq_base": 160000.0,
            "rope.freq_base_swa": 1000.0,
            "rope.dimension_count": 12,
            "rope.scaling.factor": 2.0,
        },
        without=["blk.0.attn_norm.*"],
        keep=["*.attn_qkv.weight"],
        gain=QKV,
        pooling=["none", "mean", "cls"],
    ),
    "rank": Tiny(
        keys={
            **KEYS,
            "block_count": 2,
            "hidden_activation": "silu",
            "classifier.output_labels": ["yes", "no"],
        },
        keep=["*.attn_qkv.weight", "cls.*"],
        without=["cls.bias"],
        gain=QKV,
        familiar=True,
        pooling=["rank"],
    ),
    "first": Tiny(
        keys={
            **KEYS,
            "block_count": 2,
            "hidden_activation": "reglu",
            "classifier.pooling_type": 2,
            "attention.sliding_window": 7,
            "attention.sliding_window_pattern": [True, False],
        },
        keep=["*.attn_qkv.weight", "cls.*"],
        without=["cls.norm.*", "cls.bias"],
        gain=QKV,
        familiar=True,
        pooling=["rank"],
    ),
    # a head that scores tokens for questions of three kinds, after two layers
    "decision": Tiny(
        keys={
            **KEYS,
            "attention.sliding_window": 10,
            "decision.block_count": 2,
            "/tokenizer.ggml.token_type_count": 3,
        },
        keep=["*.attn_qkv.weight", "cls.*"],
        gain=QKV,
        newest=True,
        pooling=["none"],
    ),
}
