"""Tiny models of DeepSeek-OCR's decoder."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

KEYS = {
    **EXPERTS,
    **SIZES,
    "attention.head_count_kv": 4,
    "leading_dense_block_count": 1,
    "expert_shared_count": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.attn_[qk].weight": 1.5}

TINY = {
    "moe": Tiny(keys=KEYS, gain=GAIN, familiar=True),
    # One matrix for gate and up, a scale of positions that RoPE does not see.
    "merged": Tiny(
        keys={**KEYS, "expert_weights_norm": True, "expert_gating_func": 2,
              "expert_weights_scale": 2.0, "rope.scaling.factor": 4.0},
        without=["output.weight", "*.bias", "*.scale"], keep=["*.ffn_gate_up_exps.weight"],
        gain={"*.ffn_gate_inp.weight": 2, "token_embd.weight": 0.6}, familiar=True,
    ),
}  # fmt: skip
