"""Tiny models of Qwen2-VL."""

from dev.tiny_models import SIZES, Tiny

TINY = {
    "dense": Tiny(
        keys={
            **SIZES,
            "attention.layer_norm_rms_epsilon": 0.0,  # llama.cpp does not read it
            "rope.dimension_sections": [2, 3, 3, 0],
            "rope.freq_base": 1e6,
        },
        gain={"*.attn_[qk].weight": 2},
        familiar=True,
    )
}
