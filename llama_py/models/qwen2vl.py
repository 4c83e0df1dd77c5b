"""Qwen2-VL and Qwen2.5-VL, the part that reads text: Qwen2, where positions have several axes
(models/qwen2vl.cpp, where the epsilon of norms is forgotten)."""

from __future__ import annotations

from llama_py.gguf.keys import uints
from llama_py.hparams.geometry import ROPE_MROPE
from llama_py.models.trunks.plain import Plain, WholeHParams


class Qwen2VLHParams(WholeHParams):
    rope_type = ROPE_MROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)


class Qwen2VL(Plain):
    arch = "qwen2vl"
    HParams = Qwen2VLHParams
    output_bias = "unread"
