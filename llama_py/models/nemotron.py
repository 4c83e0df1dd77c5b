"""Nemotron: norms with biases, and squares of positive values in the feed-forward
(models/nemotron.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import RELU_SQR
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams


class NemotronHParams(LayerNormHParams):
    rope_type = ROPE_NEOX


class Nemotron(LayerNormDecoder):
    arch = "nemotron"
    HParams = NemotronHParams
    sizes = {32: "4B"}
    layer_sum = "ffn_out"
    out_bias = ffn_bias = True
    act, ffn_name = RELU_SQR, ""
