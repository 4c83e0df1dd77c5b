"""Checkpoints of Qwen2-MoE (llama.cpp's Qwen2MoeModel)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.merge import ExpertMerger, split_gate_up
from llama_py.checkpoint.names import EXPERTS, LAYERS, LLAMA, SHARED_EXPERT, name_layers

PARTS = ("down_proj", "gate_proj", "up_proj")


class Qwen2MoeConverter(Converter):
    arch = "qwen2moe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen2MoeForCausalLM",)
    names = {**LLAMA, **name_layers(LAYERS, {**EXPERTS, **SHARED_EXPERT})}

    def keys(self) -> None:
        super().keys()
        for key, name in (
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ):
            if (length := self.find(name)) is not None:
                self.out.u32(key, length)

    @cached_property
    def experts(self) -> ExpertMerger:
        return ExpertMerger(self.find("num_local_experts", "num_experts") or 0, PARTS)

    def tensors(
        self, name: str, array: LazyArray, layer: int | None
    ) -> Iterator[tuple[str, LazyArray]]:
        stored = name.removesuffix(".weight")
        if stored.endswith("mlp.experts.down_proj"):
            yield from super().tensors(f"{stored}.weight", array, layer)
        elif stored.endswith("mlp.experts.gate_up_proj"):
            for new_name, new in split_gate_up(name, array):
                yield from super().tensors(new_name, new, layer)
        else:
            merged = self.experts.merge(name, array)
            for new_name, new in ((name, array),) if merged is None else merged:
                yield from super().tensors(new_name, new, layer)

    def check_complete(self) -> None:
        self.experts.check_complete(self.folder.path)
