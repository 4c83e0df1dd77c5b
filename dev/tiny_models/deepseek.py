"""Tiny models of DeepSeek, the first with experts."""

from dev.tiny_models import EXPERTS, SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **EXPERTS,
            **SIZES,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_weights_scale": 2.0,
            "attention.layer_norm_rms_epsilon": 1e-6,
        },
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
