"""Tiny models of GPT-NeoX."""

from dev.tiny_models import SIZES, Tiny

NEOX = {**SIZES, "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": 4}

TINY = {
    name: Tiny(
        keys={**NEOX, "use_parallel_residual": name == "parallel"},
        keep=["*.attn_qkv.weight"],
        gain={"*.attn_qkv.weight": 1.5},
        familiar=True,
    )
    for name in ("parallel", "serial")
}
