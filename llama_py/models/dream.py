"""Dream: Qwen2 trained for diffusion (models/dream.cpp)."""

from __future__ import annotations

from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.llada import Llada, LladaHParams


class DreamHParams(LladaHParams):
    rope_type = ROPE_NEOX


class Dream(Llada):
    arch = "dream"
    HParams = DreamHParams
    sizes = {28: "7B"}
    output_bias = "unread"
