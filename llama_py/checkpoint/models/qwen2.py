"""Checkpoints of Qwen2 and models like it (llama.cpp's Qwen2Model)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.pooling import pooling_keys


class Qwen2Converter(Converter):
    arch = "qwen2"
    classes: ClassVar[tuple[str, ...]] = (
        "Qwen2Model",
        "Qwen2ForCausalLM",
        "Qwen2AudioForConditionalGeneration",
        "KORMoForCausalLM",
        "AudioFlamingo3ForConditionalGeneration",
        "DotsOCRForCausalLM",
    )
    tokenizer = "either"

    exports: ClassVar[Mapping[str, str]] = {"Qwen2ForCausalLM": "qwen2"}
    nfc = True

    def select(self, name: str) -> str | None:
        selected = super().select(name)
        is_bare = self.folder.model_name.endswith("Model") and selected is not None
        return f"model.{selected}" if is_bare else selected

    def keys(self) -> None:
        super().keys()
        pooling_keys(self.folder, self.out)
