"""Tiny encoders as Gemma4's."""

from dev.tiny_vision import SIZES, TinyEyes

_SIZES = {**SIZES, "vision.projector.scale_factor": 2, "vision.projection_dim": 32}

TINY = {
    "gemma4v": TinyEyes(
        keys={**_SIZES, "vision.image_size": 128},
        without=("*.attn_qkv.*", "*.ls?.*", "v.p*_ln.*", "*.bias"),
        sizes=((70, 50),),
        text=("gemma4", "shared"),
    ),
    "gemma4uv": TinyEyes(
        keys={**_SIZES, "vision.image_size": 256, "vision.block_count": 0},
        sizes=((70, 50),),
        text=("gemma4", "shared"),
    ),
}
