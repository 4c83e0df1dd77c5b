"""Tiny models of PaddleOCR-VL."""

from dev.tiny_models import WIDE, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_sections": [4, 6, 6, 0],
            "rope.freq_base": 5e5,
        },
        without=["output.weight"],
        gain={"token_embd.weight": 0.4, "*.attn_[qk].weight": 1.5},
        familiar=True,
    )
}
