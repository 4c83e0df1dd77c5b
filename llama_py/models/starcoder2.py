"""StarCoder 2, and Granite's models for code: norms and matrices with biases
(models/starcoder2.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams


class Starcoder2HParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    whole_rope = True


class Starcoder2(LayerNormDecoder):
    arch = "starcoder2"
    HParams = Starcoder2HParams
    sizes = {30: "3B", 32: "7B", 40: "15B", 52: "20B", 88: "34B"}
    out_bias = ffn_bias = "needed"
