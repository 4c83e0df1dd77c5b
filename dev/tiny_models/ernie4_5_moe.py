"""Tiny models of ERNIE 4.5 with mixture of experts."""

from dev.tiny_models import MOE, Tiny

KEYS = {
    **MOE,
    "leading_dense_block_count": 1,
    "interleave_moe_layer_step": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
GAIN = {"*.ffn_gate_inp.weight": 2, "*.exp_probs_b.bias": 0.1}

TINY = {
    "shared": Tiny(
        keys={**KEYS, "expert_shared_feed_forward_length": 80}, gain=GAIN, familiar=True
    ),
    "alone": Tiny(
        keys=KEYS,
        without=["output.weight", "*.ffn_gate_exps.weight", "*.bias"],
        gain={**GAIN, "token_embd.weight": 0.4},
        familiar=True,
    ),
}
