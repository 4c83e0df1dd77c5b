"""EXAONE 3: Llama's layers with NeoX-style RoPE (models/exaone.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.decoder import Block, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder, WholeHParams
from llama_py.weights import Weights


class ExaoneHParams(WholeHParams):
    rope_type = ROPE_NEOX


class Exaone(PlainDecoder, LongDecoder):
    arch = "exaone"
    HParams = ExaoneHParams
    sizes = {32: "8B"}
    layer_sum = "ffn_out"

    def attention(self, w: Weights, il: int) -> Block:
        return Attention(w, self.hp, factors=self.factors)
