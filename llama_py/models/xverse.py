"""XVERSE: Llama's layers (models/xverse.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams


class XverseHParams(WholeHParams):
    rope_type = ROPE_NORMAL


class Xverse(PlainDecoder):
    arch = "xverse"
    HParams = XverseHParams
    sizes = {32: "7B", 40: "13B", 80: "65B"}
