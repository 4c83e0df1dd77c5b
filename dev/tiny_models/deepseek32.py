"""Tiny models of DeepSeek-V3.2."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT, YARN

# Layers: dense and with experts, each attending to 8 tokens; then NextN. With few heads, more
# cells would have a score of zero, and the selection would be random.
MOE = {
    "block_count": 3,
    "nextn_predict_layers": 1,
    **LATENT,
    "expert_shared_count": 2,
    "attention.indexer.head_count": 12,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 8,
    **YARN,
}

TINY = {
    "moe": Tiny(keys=MOE, gain={"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2}),
    # no scaling of positions, one head for trunk and drafts
    "plain": Tiny(
        keys={k: v for k, v in MOE.items() if not k.startswith("rope.scaling.")},
        without=[
            "*.scale",
            "output.weight",
            "*.exp_probs_b.bias",
            "*.nextn.embed_*",
            "*.nextn.shared_*",
        ],
        gain={"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2, "token_embd.weight": 0.4},
    ),
}
