"""Checkpoints of Qwen2-MoE (llama.cpp's Qwen2MoeModel)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.names import EXPERTS, SHARED_EXPERT
from llama_py.checkpoint.shared_keys import Keys

EXPERT_KEYS: Keys = (
    ("expert_feed_forward_length", "u32", ("moe_intermediate_size",)),
    ("expert_shared_feed_forward_length", "u32", ("shared_expert_intermediate_size",)),
)


class Qwen2MoeConverter(ExpertsConverter):
    arch = "qwen2moe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen2MoeForCausalLM",)
    layers = {**EXPERTS, **SHARED_EXPERT}

    def keys(self) -> None:
        super().keys()
        self.copy(*EXPERT_KEYS)
