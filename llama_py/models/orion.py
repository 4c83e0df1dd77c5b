"""Orion: Llama with norms that have biases (models/orion.cpp)."""

from __future__ import annotations

from llama_py.blocks.activation import SILU
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.layer_norm import LayerNormDecoder, LayerNormHParams


class OrionHParams(LayerNormHParams):
    rope_type = ROPE_NEOX
    whole_rope = True


class Orion(LayerNormDecoder):
    arch = "orion"
    HParams = OrionHParams
    sizes = {40: "14B"}
    act, gated = SILU, True
