"""Tiny models of Llama 4."""

from dev.tiny_models import Tiny

# Chunks have 8192 tokens, so prompts begin shortly before the second. Every other layer has
# experts; the last sees everything, and has no RoPE.
SCOUT = {
    "context_length": 16384,
    "block_count": 4,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "expert_feed_forward_length": 48,
    "expert_count": 6,
    "expert_used_count": 2,
    "interleave_moe_layer_step": 2,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 5e5,
}

TINY = {
    "moe": Tiny(keys=SCOUT, first=8180, gain={"*.ffn_gate_inp.weight": 2}),
    # The number of experts of the larger model, which does not norm queries and keys. Its window
    # in the file is not used.
    "many": Tiny(
        keys={
            **SCOUT,
            "expert_count": 128,
            "expert_used_count": 1,
            "expert_feed_forward_length": 16,
            "interleave_moe_layer_step": 4,
            "attention.sliding_window": 12,
            "rope.freq_base_swa": 1e4,
        },
        without=["*.bias", "*.scale", "rope_freqs.weight"],
    ),
}
