"""Tiny encoder like Pixtral's, which merges patches."""

from dev.tiny_vision import GATED, SIZES, TinyEyes

TINY = {
    "pixtral": TinyEyes(
        keys={**SIZES, "vision.spatial_merge_size": 2, "use_gelu": False, "use_silu": True},
        without=(*GATED[:-1], "*.bias", "v.post_ln.*"),
        sizes=((70, 50),),
    )
}
