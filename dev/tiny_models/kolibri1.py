"""Tiny models of Kolibri 1."""

from dev.tiny_models import MOE, Tiny

KEYS = {
    **MOE,
    "block_count": 2,
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 40,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": [True, False],
}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_q_norm.weight": 2}

TINY = {
    "moe": Tiny(keys=KEYS, gain=GAIN, newest=True),
    # One matrix for queries, keys and values; YaRN. Rotated dimensions are the first layer's.
    "fused": Tiny(
        keys={
            **KEYS,
            "expert_gating_func": 4,
            "expert_weights_norm": False,
            "attention.sliding_window_pattern": [False, True],
            "rope.dimension_count": 24,
            "rope.dimension_count_swa": 16,
            "rope.freq_base": 3e3,
            "rope.freq_base_swa": 5e2,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
        keep=["*.attn_qkv.weight"],
        gain=GAIN,
        newest=True,
    ),
    "softmax": Tiny(
        keys={
            **KEYS,
            "expert_gating_func": 1,
            "expert_used_count": 1,
            "rope.dimension_count_swa": 16,
        },
        without=["*.bias"],
        gain=GAIN,
        familiar=True,
        newest=True,
    ),
    # Softmax over the chosen experts; groups of experts are ignored.
    "chosen": Tiny(
        keys={
            **KEYS,
            "expert_gating_func": 3,
            "expert_weights_norm": False,
            "expert_group_count": 2,
            "expert_group_used_count": 1,
        },
        without=["*.scale"],
        gain=GAIN,
        familiar=True,
        newest=True,
    ),
}
