"""Checkpoints of Qwen3.5 with experts (llama.cpp's Qwen3_5MoeTextModel)."""

from __future__ import annotations

from llama_py.checkpoint.models.qwen35 import Qwen35Converter


class Qwen35MoeConverter(Qwen35Converter):
    arch = "qwen35moe"
    exports = {"Qwen3_5MoeForCausalLM": "qwen3_5_moe_text"}
    classes = ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM")
