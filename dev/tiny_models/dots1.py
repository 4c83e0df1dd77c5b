"""Tiny models of dots.llm1."""

from dev.tiny_models import MOE, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **MOE,
            "attention.head_count_kv": 4,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "attention.layer_norm_rms_epsilon": 1e-6,
        },
        gain={"*.ffn_gate_inp.weight": 2},
        familiar=True,
    )
}
