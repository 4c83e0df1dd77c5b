"""Tiny models of GLM-5."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT

# Layers: dense, then with experts; two of them use what the one before has chosen. Then one that
# drafts. Heads enough that every cell has a score. Rows are of whole blocks of 32: quantized files
# have F16 for others, whose products are not rounded as llama.cpp's are, and the third layer's
# indexer would choose other cells by that.
MOE = {
    "block_count": 5,
    "nextn_predict_layers": 1,
    **{k: v for k, v in LATENT.items() if k != "expert_gating_func"},
    "expert_feed_forward_length": 64,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
    "attention.q_lora_rank": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "attention.indexer.head_count": 16,
    "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 8,
    "attention.indexer.types": [1, 0, 1, 0],
}
GAIN = {"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2}

TINY = {
    "shared": Tiny(keys=MOE, gain=GAIN),
    # each layer has its own, as of files that do not say
    "full": Tiny(
        keys={k: v for k, v in MOE.items() if k != "attention.indexer.types"} | {"block_count": 3},
        without=["*.scale", "output.weight", "*.nextn.embed_*", "*.nextn.shared_*"],
        gain=GAIN | {"token_embd.weight": 0.4},
        familiar=True,
    ),
}
