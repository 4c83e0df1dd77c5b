"""A tiny encoder as Qwen3VL's."""

from dev.tiny_vision import JOINT, SIZES, TinyEyes

TINY = {
    "qwen3vl_merger": TinyEyes(
        keys={**SIZES, "vision.block_count": 3},
        without=(*JOINT, "v.deepstack.[12].*"),
        keep=("*.attn_qkv.weight",),
        sizes=((70, 50), (32, 32)),
        text=("qwen3vl", "dense"),
    )
}
