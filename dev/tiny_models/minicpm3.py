"""Tiny models of MiniCPM 3."""

from dev.tiny_models import Tiny

DENSE = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.key_length": 24,
    "attention.value_length": 16,
    "attention.kv_lora_rank": 32,
    "rope.dimension_count": 8,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.q_lora_rank": 48,
    "rope.scaling.original_context_length": 32,
}

TINY = {
    "dense": Tiny(
        keys=DENSE,
        keep=["*.attn_kv_b.weight", "rope_factors_*"],
        gain={"token_embd.weight": 0.1, "*.attn_q_b.weight": 2},
    ),
    # RoPE rotates every dimension of a head.
    "turned": Tiny(
        keys={**DENSE, "rope.dimension_count": 24},
        keep=["*.attn_kv_b.weight"],
        gain={"token_embd.weight": 0.1, "*.attn_q_b.weight": 2},
        familiar=True,
    ),
}
