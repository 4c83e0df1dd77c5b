"""Tiny models of Llama-Nemotron."""

from dev.tiny_models import Tiny

# Layers: attention; a matrix instead of attention; only feed-forward; empty; attention with fewer
# keys and values.
TINY = {
    "mixed": Tiny(
        keys={
            "block_count": 5,
            "embedding_length": 64,
            "feed_forward_length": [96, 64, 96, 0, 48],
            "attention.head_count": [4, 4, 0, 0, 4],
            "attention.head_count_kv": [2, 0, 0, 0, 1],
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 5e5,
        },
        gain={"*.attn_[qk].weight": 2},
    ),
    # The last layer has no attention; factors by the length of the context.
    "plain": Tiny(
        keys={
            "block_count": 3,
            "embedding_length": 64,
            "feed_forward_length": [96, 128, 64],
            "attention.head_count": [4, 4, 0],
            "attention.head_count_kv": [2, 4, 0],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": 128,
        },
        without=["*.bias", "*.scale", "output.weight"],
        keep=["rope_factors_*"],
        gain={"token_embd.weight": 0.3},
    ),
}
