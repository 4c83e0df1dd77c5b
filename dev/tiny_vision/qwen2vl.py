"""A tiny encoder as Qwen2VL's."""

from dev.tiny_vision import SIGLIP, SIZES, TinyEyes

TINY = {
    "qwen2vl_merger": TinyEyes(
        keys=SIZES, without=SIGLIP, sizes=((70, 50), (20, 90)), text=("qwen2vl", "dense")
    )
}
