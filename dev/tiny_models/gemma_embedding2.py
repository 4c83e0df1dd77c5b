"""Tiny models of EmbeddingGemma 2."""

from dev.tiny_models import SIZES, Tiny

KEYS = {
    **SIZES,
    "embedding_length": 32,
    "attention.head_count_kv": 2,
    "attention.key_length": 24,
    "attention.value_length": 24,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "embedding_length_per_layer_input": 8,
    "rope.freq_base": 1e6,
}

GAIN = {"token_embd.weight": 0.2, "*.layer_output_scale.weight": 0.1}
MEAN = {"*.layer_output_scale.weight": 0.9, "*.attn_[qk]_norm.weight": 0.5}

TINY = {
    "sizes": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.dimension_count_swa": 16,
            "rope.freq_base_swa": 5e3,
            "pooling_type": 1,
        },
        gain=GAIN,
        newest=True,
        mean=MEAN,
        pooling=["none", "mean", "cls", "last"],
    ),
    # the keys of windows are missing
    "plain": Tiny(
        keys={**KEYS, "block_count": 6, "embedding_length_out": 48, "pooling_type": 3},
        gain=GAIN,
        newest=True,
        mean=MEAN,
        familiar=True,
        pooling=["none", "last"],
    ),
    "period": Tiny(
        keys={**KEYS, "attention.sliding_window_pattern": 2, "rope.dimension_count": 16},
        gain=GAIN,
        newest=True,
        mean=MEAN,
        familiar=True,
        pooling=["mean"],
    ),
}
