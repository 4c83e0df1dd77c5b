"""A tiny encoder as Gemma3's."""

from dev.tiny_vision import SIGLIP, SIZES, TinyEyes

TINY = {
    "gemma3": TinyEyes(
        keys={**SIZES, "vision.projector.scale_factor": 2},
        without=SIGLIP,
        sizes=((50, 40), (20, 24)),
        text=("gemma3", "dense"),
    )
}
