"""Tiny models of Hunyuan V4."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT

GROUPS = ("expert_group_count", "expert_group_used_count")
# Layers: dense, then with experts.
DENSE = {
    "block_count": 2,
    **{k: v for k, v in LATENT.items() if k not in GROUPS},
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "hyper_connection.count": 3,
    "hyper_connection.epsilon": 1e-4,
    "hyper_connection.magnitude": 1.5,
    "swiglu_clamp_exp": [0.0, 0.5],
}
GAIN = {"*.attn_q_b.weight": 2, "*.attn_k_b.weight": 2, "*.ffn_down_exps.weight": 3}

TINY = {
    # the last layer reuses the first layer's selection
    "moe": Tiny(
        keys=DENSE
        | {
            "block_count": 3,
            "swiglu_clamp_exp": [0.0, 0.5, 0.4],
            "attention.indexer.head_count": 16,
            "attention.indexer.key_length": 64,
            "attention.indexer.top_k": 8,
            "attention.indexer.types": [1, 1, 0],
        },
        gain=GAIN,
    ),
    "all": Tiny(keys=DENSE, without=["*.exp_probs_b.bias"], gain=GAIN, familiar=True),
}
