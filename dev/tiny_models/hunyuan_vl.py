"""Tiny models of Hunyuan, text and vision."""

from dev.tiny_models import WIDE, Tiny

DENSE = {
    **WIDE,
    "expert_count": 1,
    "expert_used_count": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.scaling.alpha": 50.0,
}

TINY = {
    "axes": Tiny(keys={**DENSE, "rope.dimension_sections": [4, 4, 4, 4]}),
    "dense": Tiny(
        keys=DENSE,
        without=["*.bias", "*.scale", "output.weight"],
        gain={"token_embd.weight": 0.4},
        familiar=True,
    ),
}
