"""Tiny models of Mistral 3."""

from dev.tiny_models import WIDE, Tiny

DENSE = {
    **WIDE,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 1e6,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_beta_fast": 16.0,
    "rope.scaling.yarn_beta_slow": 2.0,
    "rope.scaling.yarn_log_multiplier": 0.7,
}

TINY = {
    # Queries grow from the 16th token on.
    "dense": Tiny(
        keys={**DENSE, "attention.temperature_scale": 0.5}, gain={"*.attn_[qk].weight": 2}
    ),
    "moe": Tiny(
        keys={**DENSE, "expert_count": 5, "expert_used_count": 2},
        without=["*.bias", "*.ffn_gate_exps.*", "output.weight", "rope_freqs.weight"],
        gain={"token_embd.weight": 0.4, "*.ffn_gate_inp.weight": 2},
        familiar=True,
    ),
}
