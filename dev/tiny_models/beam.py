"""Tiny models of Beam."""

from dev.tiny_models import MOE, WIDE, Tiny

COMMON = {
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "expert_feed_forward_length": 48,
}

# Layers: dense, then with experts; the second and the last see all tokens.
TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            **COMMON,
            "block_count": 4,
            "attention.sliding_window_pattern": [True, False, True, False],
            "attention.temperature_scale": 0.3,
            "attention.temperature_length": 7,
            "leading_dense_block_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "final_logit_softcapping": 20.0,
            "rope.dimension_count": 24,
            "rope.freq_base_swa": 1e3,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 2.0,
        },
        gain={"*.ffn_gate_inp.weight": 2, "*.attn_[qk].weight": 2},
        newest=True,
    ),
    "softmax": Tiny(
        keys={
            **MOE,
            **COMMON,
            "attention.sliding_window_pattern": [False, True],
            "leading_dense_block_count": 0,
            "expert_gating_func": 1,
            "expert_used_count": 1,
            "expert_weights_norm": False,
            "expert_weights_scale": 1.0,
            "attention.temperature_scale": -0.5,
            "attention.temperature_length": 8,
        },
        without=["*.attn_[qkv].bias", "*.scale"],
        gain={"*.ffn_gate_inp.weight": 2, "*.attn_[qk].weight": 2},
        newest=True,
    ),
    "softplus": Tiny(
        keys={
            **MOE,
            **COMMON,
            "attention.sliding_window_pattern": [True, True],
            "leading_dense_block_count": 0,
            "expert_gating_func": 4,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
        },
        without=["*.bias", "*.scale"],
        gain={"*.ffn_gate_inp.weight": 2},
        newest=True,
    ),
    "dense": Tiny(
        keys={
            **WIDE,
            **COMMON,
            "attention.sliding_window_pattern": [True, False],
            "leading_dense_block_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
        },
        without=["output.weight"],
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        newest=True,
    ),
}
