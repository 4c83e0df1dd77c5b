"""A tiny encoder as Qwen2.5's, with windows."""

from dev.tiny_vision import GATED, SIZES, TinyEyes

TINY = {
    "qwen2.5vl_merger": TinyEyes(
        keys={
            **SIZES,
            "vision.block_count": 3,
            "vision.patch_size": 28,
            "vision.image_size": 224,
            "vision.n_wa_pattern": 2,
            "use_gelu": False,
            "use_silu": True,
        },
        without=(*GATED, "*.ln?.bias"),
        sizes=((300, 170),),
        like="qwen2vl_merger",
    )
}
