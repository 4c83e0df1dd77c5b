"""PaddleOCR-VL's decoder: ERNIE 4.5 with positions of several axes
(models/paddleocr.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import uints
from llama_py.hparams.layer_shape import ROPE_MROPE
from llama_py.models.ernie4_5 import Ernie45, Ernie45HParams


class PaddleOCRHParams(Ernie45HParams):
    rope_type = ROPE_MROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)


class PaddleOCR(Ernie45):
    arch = "paddleocr"
    HParams = PaddleOCRHParams
    out_bias = True
