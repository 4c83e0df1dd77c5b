"""Checkpoints of Qwen2-MoE (llama.cpp's Qwen2MoeModel)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.names import EXPERTS, SHARED_EXPERT
from llama_py.checkpoint.shared_keys import Keys
from llama_py.checkpoint.stored import StoredModel

EXPERT_KEYS: Keys = (
    ("expert_feed_forward_length", "u32", ("moe_intermediate_size",)),
    ("expert_shared_feed_forward_length", "u32", ("shared_expert_intermediate_size",)),
)


class Qwen2MoeConverter(ExpertsConverter):
    arch = "qwen2moe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen2MoeForCausalLM",)
    layers = {**EXPERTS, **SHARED_EXPERT}
    exports: ClassVar[Mapping[str, str]] = {"Qwen2MoeForCausalLM": "qwen2_moe"}
    prefers = (*ExpertsConverter.prefers, "num_experts")
    constants: ClassVar[Mapping[str, Any]] = {"norm_topk_prob": False}
    nfc = True

    def keys(self) -> None:
        super().keys()
        self.copy(*EXPERT_KEYS)

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        return {**super().restore_config(model), **model.restore(EXPERT_KEYS, cls.prefers)}

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for stored, one in super().restore(name, array, layer):
            is_gate = stored.endswith("shared_expert_gate.weight")  # GGUF omits its size of 1
            yield stored, one.reshape(1, -1) if is_gate else one
