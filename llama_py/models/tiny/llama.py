"""Tiny models of Llama."""

from llama_py.models.tiny import Tiny

DENSE = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-5,
}

# Logits of order one, although the head is the embeddings.
TIED = {"token_embd.weight": 0.2, "*.attn_[qk].*": 2}

TINY = {
    "dense": Tiny(keys=DENSE, without=["*.bias", "*.scale", "output.weight"], gain=TIED),
    "moe": Tiny(
        keys={**DENSE, "expert_count": 5, "expert_used_count": 2},
        gain={"*.attn_[qk].weight": 2, "*.ffn_gate_inp.weight": 2},
    ),
}
