"""Tiny models of PLM."""

from dev.tiny_models import Tiny

TINY = {
    "dense": Tiny(
        keys={
            "block_count": 2,
            "embedding_length": 64,
            "feed_forward_length": 96,
            "attention.head_count": 4,
            "attention.key_length": 24,
            "attention.value_length": 16,
            "attention.kv_lora_rank": 32,
            "rope.dimension_count": 8,
            "attention.layer_norm_rms_epsilon": 1e-5,
        },
        without=["output.weight", "*.attn_q_a*"],
        keep=["*.attn_kv_b.weight"],
        unrecorded=True,
        gain={"token_embd.weight": 0.3},
    )
}
