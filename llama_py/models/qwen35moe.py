"""Qwen3.5 and 3.6 with mixture of experts: delta nets, every fourth layer full attention, and a
shared expert in addition to the chosen ones (models/qwen35moe.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import uints
from llama_py.hparams.layer_shape import ROPE_IMROPE
from llama_py.models.trunks.hybrid import HybridMoe, HybridMoeHParams


class Qwen35MoeHParams(HybridMoeHParams):
    rope_type = ROPE_IMROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)


class Qwen35Moe(HybridMoe):
    arch = "qwen35moe"
    folds = "qwen35moe"
    HParams = Qwen35MoeHParams
    sizes = {40: "35B.A3B", 48: "122B.A10B", 60: "397B.A17B"}
