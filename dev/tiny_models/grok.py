"""Tiny models of Grok."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

FIRST = {
    **SIZES,
    "expert_count": 6,
    "expert_used_count": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_[qk].weight": 3}

TINY = {
    # Like files of the first version: few keys, and no dense part.
    "moe": Tiny(
        keys=FIRST,
        without=["*.ffn_up.weight", "*.ffn_gate.weight", "*.ffn_down.weight",
                 "*.layer_output_norm.weight", "*.bias", "*.scale"],
        gain={**GAIN, "token_embd.weight": 0.0128},
        familiar=True,
    ),
    "both": Tiny(
        keys={
            **FIRST,
            **EXPERTS,
            "logit_scale": 0.8,
            "embedding_scale": 2.0,
            "attention.output_scale": 0.4,
            "attn_logit_softcapping": 4.0,
            "final_logit_softcapping": 2.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_ext_factor": 0.8,
            "rope.scaling.yarn_beta_fast": 12.0,
            "rope.scaling.yarn_beta_slow": 2.0,
        },
        gain={**GAIN, "token_embd.weight": 0.5},
    ),
}  # fmt: skip
