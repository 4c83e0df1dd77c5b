"""Tiny models of Command A with experts."""

from dev.tiny_models import MOE, Tiny

# Layers: dense, which knows positions; three with experts, the third of all without a window.
KEYS = {
    **MOE,
    "block_count": 4,
    "leading_dense_block_count": 1,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": 2,
    "logit_scale": 0.3,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
}

TINY = {
    "mtp": Tiny(
        keys={
            **KEYS,
            "block_count": 5,
            "nextn_predict_layers": 1,
            "expert_shared_count": 2,
            "attention.layer_norm_epsilon": 1e-5,
        },
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
    "rms": Tiny(
        keys={**KEYS, "attention.layer_norm_rms_epsilon": 1e-5, "expert_gating_func": 1},
        without=["*.bias", "*.scale", "output.weight"],
        keep=["*.ffn_gate_up_exps.weight"],
        gain={"token_embd.weight": 0.4, "*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
}
