"""A tiny encoder as Llama 4's."""

from dev.tiny_vision import SIGLIP, SIZES, TinyEyes

TINY = {
    "llama4": TinyEyes(
        keys={**SIZES, "vision.projector.scale_factor": 2},
        without=SIGLIP[:-1],
        sizes=((70, 50), (20, 30)),
        text=("llama4", "moe"),
    )
}
