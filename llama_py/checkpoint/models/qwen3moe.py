"""Checkpoints of Qwen3-MoE (llama.cpp's Qwen3MoeModel)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.models.qwen2moe import Qwen2MoeConverter
from llama_py.checkpoint.names import HEAD_NORMS


class Qwen3MoeConverter(Qwen2MoeConverter):
    arch = "qwen3moe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3MoeForCausalLM",)
    layers = HEAD_NORMS
