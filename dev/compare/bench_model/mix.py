"""Choose the type of each matrix like llama.cpp (llama-quant.cpp:llama_tensor_get_type)."""

from __future__ import annotations

import re

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

from dev.compare.bench_model.spec import TensorSpec

BASE = {
    "F16": Type.F16,
    "Q8_0": Type.Q8_0,
    "Q6_K": Type.Q6_K,
    "Q5_K_M": Type.Q5_K,
    "Q4_K_M": Type.Q4_K,
    "IQ4_XS": Type.IQ4_XS,
    "Q4_0": Type.Q4_0,
}
# Replaces a type with blocks of 256 values if the row length is not a multiple of 256.
SMALLER_BLOCK = {
    Type.Q4_K: Type.Q5_0,
    Type.Q5_K: Type.Q5_1,
    Type.Q6_K: Type.Q8_0,
    Type.IQ4_XS: Type.IQ4_NL,
}
VALUES = ("attn_v.weight", "attn_qkv.weight")


class Mix:
    """Tensor types of one file. `kind` is a key of BASE; `_M` types give some layers more bits.

    n_gqa  query heads per key head
    """

    def __init__(self, kind: str, tensors: list[TensorSpec], n_layer: int, n_gqa: int = 1) -> None:
        names, self.n_gqa = [t.name for t in tensors], n_gqa
        self.base, self.medium, self.n_layer = BASE[kind], kind.endswith("_M"), n_layer
        self.values = [name for name in names if name.endswith(VALUES)]
        self.head = "output.weight" if "output.weight" in names else "token_embd.weight"

    def type_of(self, t: TensorSpec) -> Type:
        """Return the stored type of `t`; F32 for a tensor that is not a matrix."""
        return Type.F32 if t.values else fitting(self._wanted(t.name), t.ne[0])

    def _wanted(self, name: str) -> Type:
        if name == self.head and self.base not in (Type.F16, Type.Q8_0):
            return Type.Q6_K
        if self.base is Type.IQ4_XS and self._is_early_or_shared(name):
            return Type.Q5_K
        return Type.Q6_K if self.medium and self._is_sensitive(name) else self.base

    def _is_early_or_shared(self, name: str) -> bool:
        """Return True for value projections that heads share, and for early down projections."""
        if name in self.values:
            return self.n_gqa >= 4
        layer = re.match(r"blk\.(\d+)\.ffn_down", name)
        return layer is not None and int(layer[1]) < self.n_layer // 8

    def _is_sensitive(self, name: str) -> bool:
        """Return True for value and down projections in a layer that gets more bits."""
        if name in self.values:
            return gets_more_bits(self.values.index(name), len(self.values))
        layer = re.match(r"blk\.(\d+)\.ffn_down", name)
        return layer is not None and gets_more_bits(int(layer[1]), self.n_layer)


def gets_more_bits(i: int, n: int) -> bool:
    """Return True if layer `i` of `n` is in the first or last eighth, or every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def fitting(wanted: Type, row: int) -> Type:
    """Return `wanted`, or llama.cpp's fallback if the row length is not a multiple of its block."""
    for candidate in (wanted, SMALLER_BLOCK.get(wanted, wanted)):
        if row % GGML_QUANT_SIZES[candidate][0] == 0:
            return candidate
    return Type.F16
