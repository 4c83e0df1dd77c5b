"""Tiny models of Ling 3."""

from dev.tiny_models import Tiny
from dev.tiny_models.deepseek2 import LATENT

# Layers: delta net with dense feed-forward, latent attention, delta net, and NextN.
KEYS = {
    "block_count": 4,
    "nextn_predict_layers": 1,
    **LATENT,
    "attention.head_count_kv": [0, 1, 0, 1],
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "ssm.conv_kernel": 4,
    "kda.head_dim": 32,
    "kda.gate_lower_bound": -5.0,
    "swiglu_clamp_exp": [0.0, 0.5, 0.0, 0.4],
    "swiglu_clamp_shexp": [0.5, 0.0, 0.4, 0.3],
}
SMALL_AND_NEXTN = "attention.q_lora_rank", "nextn_predict_layers"
LEFT_OUT = ["*.attn_[qkv].bias", "*.nextn.embed_tokens.*", "*.nextn.shared_head_*", "*.scale"]
GAIN = {"*.attn_[qkv].weight": 2, "*.ssm_dt.bias": 3, "*.ffn_down_exps.weight": 3}

TINY = {
    "mtp": Tiny(keys=KEYS, without=LEFT_OUT, gain=GAIN, prompt=72),
    # Several position axes, queries by one matrix.
    "axes": Tiny(
        keys={k: v for k, v in KEYS.items() if k not in SMALL_AND_NEXTN}
        | {
            "block_count": 3,
            "attention.head_count_kv": [0, 1, 0],
            "swiglu_clamp_exp": [0.0, 0.5, 0.0],
            "swiglu_clamp_shexp": [0.5, 0.0, 0.4],
            "rope.dimension_sections": [2, 3, 3, 0],
            "expert_shared_feed_forward_length": 40,
        },
        without=[*LEFT_OUT, "*.attn_q_a*", "output.weight"],
        gain=GAIN | {"token_embd.weight": 0.4},
        familiar=True,
    ),
}
