"""Tiny models of Laguna."""

from dev.tiny_models import MOE, Tiny

KEYS = {
    **MOE,
    "block_count": 3,
    "attention.head_count": [4, 6, 4],
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 12,
    "attention.sliding_window_pattern": 2,
    "leading_dense_block_count": 1,
    "expert_shared_feed_forward_length": 32,
    "expert_weights_norm": True,
    "expert_weights_scale": 1.5,
    "rope.dimension_count": 16,
    "rope.dimension_count_swa": 32,
    "rope.freq_base_swa": 5e3,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
GAIN = {"*.ffn_gate_inp.weight": 2}
BIAS = ["*.exp_probs_b.bias"]

TINY = {
    "moe": Tiny(keys=KEYS, without=["*.bias"], keep=BIAS, gain=GAIN),
    # YaRN's limits, which llama.cpp reads since b11739.
    "limits": Tiny(
        keys={**KEYS, "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
        without=["*.bias"],
        keep=BIAS,
        gain=GAIN,
        newest=True,
    ),
}
