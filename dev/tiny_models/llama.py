"""Tiny models of Llama."""

from dev.tiny_models import WIDE, Tiny

DENSE = {**WIDE, "attention.layer_norm_rms_epsilon": 1e-5}

# Logits of order one, although the head is the embeddings.
TIED = {"token_embd.weight": 0.2, "*.attn_[qk].*": 2}

TINY = {
    "dense": Tiny(keys=DENSE, without=["*.bias", "*.scale", "output.weight"], gain=TIED),
    "moe": Tiny(
        keys={**DENSE, "expert_count": 5, "expert_used_count": 2},
        gain={"*.attn_[qk].weight": 2, "*.ffn_gate_inp.weight": 2},
    ),
}
