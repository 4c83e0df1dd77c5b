"""InternLM 2: Llama's layers (models/internlm2.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams


class InternLm2HParams(WholeHParams):
    rope_type = ROPE_NORMAL


class InternLm2(PlainDecoder):
    arch = "internlm2"
    HParams = InternLm2HParams
    sizes = {32: "7B", 48: "20B"}
