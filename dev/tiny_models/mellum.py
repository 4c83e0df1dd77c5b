"""Tiny models of Mellum."""

from dev.tiny_models import DRAFT_RUNS, MOE, Tiny

# Every other layer sees more than 12 tokens, and only its positions are scaled.
KEYS = {
    **MOE,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": 2,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
GAIN = {"*.ffn_gate_inp.weight": 2}

TINY = {
    "moe": Tiny(keys=KEYS, without=["*.bias"], gain=GAIN, familiar=True),
    # Keys of experts that llama.cpp reads since b11739.
    "sigmoid": Tiny(
        keys={**KEYS, "expert_gating_func": 2, "expert_weights_norm": False},
        without=["*.bias"],
        gain=GAIN,
        newest=True,
    ),
    "mtp": Tiny(
        keys={**KEYS, "block_count": 3, "nextn_predict_layers": 1},
        without=["*.bias", "*.nextn.embed_tokens.*", "*.nextn.shared_head_head.*"],
        gain=GAIN,
        familiar=True,
        newest=True,
    ),
    # a NextN layer with a window
    "window": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "nextn_predict_layers": 1,
            "attention.sliding_window_pattern": [True, False, True],
        },
        without=["*.bias", "*.nextn.embed_tokens.*", "*.nextn.shared_head_head.*"],
        gain=GAIN,
        familiar=True,
        newest=True,
        runs=DRAFT_RUNS,
    ),
}
