"""Checkpoints of Chameleon, text only (conversion/chameleon.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays, stack
from llama_py.checkpoint.models.llama import RotatedConverter
from llama_py.checkpoint.names import HEAD_NORMS
from llama_py.checkpoint.rotary import permute


class ChameleonConverter(RotatedConverter):
    arch = "chameleon"
    classes = ("ChameleonForConditionalGeneration", "ChameleonForCausalLM")
    layers = HEAD_NORMS
    skipped = ("model.vqmodel",)

    def keys(self) -> None:
        super().keys()
        self.out.boolean("swin_norm", self.config.get("swin_norm", False))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for part in "qk":
            if name.endswith((f"{part}_norm.weight", f"{part}_norm.bias")):
                first = permute(array.rows(0, 1).reshape(array.shape[1]), 1)
                array = stack([first] * self.n_heads(layer, part == "q"))
        yield from super().tensors(name, array, layer)
