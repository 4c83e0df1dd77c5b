"""Tiny models of K2 Horizon."""

from dev.tiny_models import MOE, WIDE, Tiny

KEYS = {
    **MOE,
    "leading_dense_block_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 1.5,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.group_norm_groups": 4,
}
VALUES = {"attention.value_expert_count": 5, "attention.value_expert_used_count": 3}
DENSE = {k: v for k, v in KEYS.items() if k in WIDE or k.startswith("attention.")}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_v_gate.weight": 2, "*.attn_q_norm.weight": 2}

TINY = {
    # Layers: dense, with experts and value experts; YaRN.
    "mova": Tiny(
        keys={
            **KEYS,
            **VALUES,
            "expert_shared_count": 1,
            "expert_shared_feed_forward_length": 40,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.yarn_beta_slow": 2.0,
        },
        gain=GAIN,
        newest=True,
    ),
    "dense": Tiny(keys={**DENSE, "rope.dimension_count": 24}, gain=GAIN, newest=True),
    # No optional tensors: no norms of heads, no gates, no biases of choices, tied head.
    "plain": Tiny(
        keys={
            **{k: v for k, v in KEYS.items() if k not in ("expert_weights_scale",)},
            "expert_gating_func": 4,
            "attention.group_norm_groups": 1,
        },
        without=["*_norm.weight", "*.attn_gate.*", "*.bias", "*.scale", "output.weight"],
        gain=GAIN,
        newest=True,
    ),
    # Other sizes of experts in each layer, and so of the two shared experts.
    "sizes": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "expert_feed_forward_length": [64, 32, 48],
            "expert_shared_count": 2,
        },
        gain=GAIN,
        newest=True,
    ),
    # One value expert of each token; two shared experts; experts in all layers.
    "softmax": Tiny(
        keys={
            **KEYS,
            **VALUES,
            "leading_dense_block_count": 0,
            "attention.value_expert_used_count": 1,
            "expert_shared_count": 2,
            "expert_gating_func": 1,
            "expert_weights_norm": False,
        },
        without=["*.bias"],
        gain=GAIN,
        newest=True,
    ),
}
