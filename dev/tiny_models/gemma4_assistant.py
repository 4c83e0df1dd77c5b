"""Tiny models of Gemma 4's assistant, for a tiny Gemma 4."""

from dev.tiny_models import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 3,
            "nextn_predict_layers": 3,
            "embedding_length": 48,
            "embedding_length_out": 32,
            "feed_forward_length": [64, 64, 96],
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.key_length": 24,
            "attention.value_length": 24,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window": 12,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base": 1e6,
            "rope.dimension_count_swa": 16,
            "rope.freq_base_swa": 5e3,
        },
        without=("*.scale",),
        mean={"*.layer_output_scale.weight": 0.9, "*.attn_q_norm.weight": 0.5},
        gain={"*.layer_output_scale.weight": 0.1},
        drafts_for=("gemma4", "shared"),
    )
}
