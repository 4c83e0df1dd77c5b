"""Tiny models of DBRX."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "moe": Tiny(
        keys={
            **SIZES,
            "expert_count": 6,
            "expert_used_count": 3,
            "attention.layer_norm_epsilon": 1e-5,
            "attention.clamp_kqv": 1.5,
        },
        gain={"*.ffn_gate_inp.weight": 2, "*.attn_qkv.weight": 1.5},
        familiar=True,
    )
}
