"""Tiny models of Maion Coder."""

from dev.tiny_models import MOE, Tiny

# Layers: dense with a window, experts and all tokens, dense with a window.
KEYS = {
    **MOE,
    "block_count": 3,
    "interleave_moe_layer_step": 2,
    "moe_latent_size": 40,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [True, False, True],
}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_q_norm.weight": 2}

TINY = {
    "moe": Tiny(keys=KEYS, gain=GAIN, newest=True),
    # Experts in all layers, in groups; one matrix for queries, keys and values; YaRN.
    "fused": Tiny(
        keys={
            **KEYS,
            "block_count": 2,
            "interleave_moe_layer_step": 1,
            "expert_feed_forward_length": [48, 32],
            "expert_used_count": 2,
            "expert_group_count": 2,
            "expert_group_used_count": 1,
            "attention.sliding_window_pattern": [False, True],
            "rope.freq_base": 3e3,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
        keep=["*.attn_qkv.weight"],
        gain={"*.ffn_gate_inp.weight": 2, "*.attn_q_norm.weight": 4},
        newest=True,
    ),
}
