"""Checkpoints of Qwen3.5 (llama.cpp's Qwen3_5TextModel)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays, concat
from llama_py.checkpoint.models.qwen3next import Qwen3NextConverter

SECTIONS = [11, 11, 10, 0]  # of multimodal RoPE, without mrope_section


class Qwen35Converter(Qwen3NextConverter):
    """Reorders the value heads of delta nets. Checkpoints have them by key head; llama.cpp repeats
    all key heads, so its n-th value heads of all key heads are adjacent."""

    arch = "qwen35"
    exports: ClassVar[Mapping[str, str]] = {"Qwen3_5ForCausalLM": "qwen3_5_text"}
    constants = {}
    joins_gates = False
    classes: ClassVar[tuple[str, ...]] = ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM")

    def keys(self) -> None:
        super().keys()
        if "mrope_section" not in self.rope:
            self.out.array("rope.dimension_sections", SECTIONS)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "linear_attn." in name and self.n_key_heads not in (0, self.n_value_heads):
            array = self._reorder(name, array)
        yield from super().tensors(name, array, layer)

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        is_ordered = self.n_key_heads in (0, self.n_value_heads)
        for stored, one in super().restore(name, array, layer):
            if "linear_attn." in stored and not is_ordered:
                shape = one.shape
                one = self._reorder(stored, one, undo=True).reshape(*shape)
            yield stored, one

    def _reorder(self, name: str, array: LazyArray, undo: bool = False) -> LazyArray:
        n_keys = 2 * self.key_dim * self.n_key_heads  # rows of queries and keys
        if ".in_proj_qkv." in name or ".conv1d" in name:
            array = array.squeeze() if ".conv1d" in name else array
            values = self._interleave(array.rows(n_keys), 0, self.value_dim, undo)
            return concat([array.rows(0, n_keys), values])
        if ".in_proj_z." in name:
            return self._interleave(array, 0, self.value_dim, undo)
        if ".out_proj." in name:
            return self._interleave(array, 1, array.n_elements(self.value_dim), undo)
        if any(part in name for part in (".in_proj_a.", ".in_proj_b.")):
            return self._interleave(array, 0, 1, undo)
        if any(part in name for part in (".A_log", ".dt_bias", ".dt_proj")):
            return self._interleave(array, array.ndim - 1, 1, undo)
        return array

    def _interleave(self, array: LazyArray, axis: int, size: int, undo: bool) -> LazyArray:
        """Reorder the value heads in a dimension, or undo it; size: values of a head."""
        n = self.n_value_heads // self.n_key_heads if undo else self.n_key_heads
        heads = np.arange(array.shape[axis]).reshape(n, -1, size)
        return array.take(heads.swapaxes(0, 1).reshape(-1).tolist(), axis)
