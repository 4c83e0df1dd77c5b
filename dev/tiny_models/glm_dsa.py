"""Tiny models of GLM-5."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT

# Layers: dense, then with experts; two layers reuse the previous layer's selection. Then NextN.
# With enough heads, every cell has a score. Rows are multiples of 32: quantized files have F16
# for other rows, and llama.cpp rounds matmuls with F16 differently, so that the third layer's
# indexer would select other cells.
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
    # each layer has an indexer, the default of files without that key
    "full": Tiny(
        keys={k: v for k, v in MOE.items() if k != "attention.indexer.types"} | {"block_count": 3},
        without=["*.scale", "output.weight", "*.nextn.embed_*", "*.nextn.shared_*"],
        gain=GAIN | {"token_embd.weight": 0.4},
        familiar=True,
    ),
}
