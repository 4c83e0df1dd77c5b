"""Qwen: one matrix with a bias for queries, keys and values (models/qwen.cpp)."""

from __future__ import annotations

from dataclasses import replace

from llama_py.blocks.attention import Attention, Projections
from llama_py.hparams.layer_shape import ROPE_NEOX, LayerShape
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.plain import PlainDecoder, PlainHParams
from llama_py.weights import Weights


class QwenHParams(PlainHParams):
    """Files have the hidden sizes of gate and up together."""

    rope_type = ROPE_NEOX

    def layer(self, il: int) -> LayerShape:
        shape = super().layer(il)
        return replace(shape, n_ff=shape.n_ff // 2)


class Qwen(PlainDecoder):
    arch = "qwen"
    HParams = QwenHParams
    sizes = {32: "7B", 40: "13B"}

    def attention(self, w: Weights, il: int) -> Block:
        qkv = Projections(w, self.hp.n_embd, self.hp.layers[il], bias="needed")
        return Attention(w, self.hp, qkv=qkv)
