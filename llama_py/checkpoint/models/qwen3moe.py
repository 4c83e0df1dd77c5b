"""Checkpoints of Qwen3-MoE (llama.cpp's Qwen3MoeModel)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS


class Qwen3MoeConverter(Qwen2MoeConverter):
    arch = "qwen3moe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3MoeForCausalLM",)
    exports: ClassVar[Mapping[str, str]] = {"Qwen3MoeForCausalLM": "qwen3_moe"}
    constants = {"norm_topk_prob": True}
    layers = HEAD_NORMS
