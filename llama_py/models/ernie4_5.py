"""ERNIE 4.5, dense (models/ernie4-5.cpp)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.blocks.attention import Attention
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Bias, Weights


class Ernie45HParams(WholeHParams):
    rope_type = ROPE_NORMAL


class Ernie45(PlainDecoder):
    arch = "ernie4_5"
    HParams = Ernie45HParams
    sizes = {18: "0.3B", 28: "21B.A3B", 54: "300B.A47B"}
    out_bias: ClassVar[Bias] = "unread"

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, out_bias=self.out_bias)
