"""Tiny models of Muse Spark."""

from dev.tiny_models import MOE, Tiny

KEYS = {
    **MOE,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.sliding_window": 12,
    "post_norm_epsilon": 1e-3,
    "moe_latent_size": 40,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "final_logit_softcapping": 15.0,
    "rope.freq_base_swa": 5e3,
}
GAIN = {"*.ffn_gate_inp.weight": 2}
MEAN = {"*_resid_*": 1}

TINY = {
    "moe": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "attention.sliding_window_pattern": [True, False, True],
            "expert_gating_func": 2,
            "logit_scale": 0.5,
            "rope.dimension_count": 24,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 2.0,
        },
        gain=GAIN,
        mean=MEAN,
        newest=True,
    ),
    "joint": Tiny(
        keys={
            **KEYS,
            "attention.sliding_window_pattern": [False, True],
            "rope.dimension_count": 16,
            "rope.dimension_count_swa": 24,
            "expert_used_count": 1,
            "expert_gating_func": 4,
            "expert_weights_norm": False,
            "expert_weights_scale": 1.0,
            "logit_scale": 1.0,
        },
        keep=["*.attn_qkv.weight"],
        gain=GAIN,
        mean=MEAN,
        newest=True,
    ),
}
