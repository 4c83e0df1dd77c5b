"""A tiny encoder as Gemma3's."""

from llama_py.vision.tiny import SIGLIP, SIZES, TinyEyes

TINY = {
    "gemma3": TinyEyes(
        keys={**SIZES, "vision.projector.scale_factor": 2},
        without=SIGLIP,
        sizes=((50, 40), (20, 24)),
        text=("gemma3", "dense"),
    )
}
