"""Qwen2-VL and Qwen2.5-VL's decoder: Qwen2 with positions of several axes
(models/qwen2vl.cpp, which omits the epsilon of norms)."""

from __future__ import annotations

from llama_py.gguf.keys import uints
from llama_py.hparams.layer_shape import ROPE_MROPE
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams


class Qwen2VLHParams(WholeHParams):
    rope_type = ROPE_MROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)


class Qwen2VL(PlainDecoder):
    arch = "qwen2vl"
    HParams = Qwen2VLHParams
    output_bias = "unread"
