"""Tiny models of OpenELM."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "block_count": 3,
            "feed_forward_length": [64, 96, 128],
            "attention.head_count": [4, 6, 8],
            "attention.head_count_kv": [2, 2, 4],
            "attention.key_length": 16,
            "attention.value_length": 16,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        without=["output.weight"],
        gain={"token_embd.weight": 0.3},
    )
}
