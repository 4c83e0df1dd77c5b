"""Checkpoints of BitNet b1.58 (conversion/bitnet.py)."""

from __future__ import annotations

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import ATTENTION, FEED_FORWARD

TERNARY = tuple(f".{module}.weight" for module in (*ATTENTION, *FEED_FORWARD))


class BitnetConverter(Converter):
    arch = "bitnet"
    classes = ("BitnetForCausalLM", "BitNetForCausalLM")
    layers = {"self_attn.inner_attn_ln": "attn_sub_norm", "mlp.ffn_layernorm": "ffn_sub_norm"}
    tokenizer = "tokenizer.model"

    def keys(self) -> None:
        super().keys()
        self.out.text("rope.scaling.type", "linear")
        self.out.f32("rope.scaling.factor", 1.0)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(TERNARY):
            array = array.map(ternary)
        yield from super().tensors(name, array, layer)


def ternary(weights: Array) -> Array:
    """Round weights to -1, 0 or 1 times their mean size."""
    x = weights.astype(np.float32)
    scale = np.maximum(np.float32(np.abs(x).mean(dtype=np.float64)), np.float32(1e-5))
    inverse = 1 / scale
    rounded: Array = np.clip(np.rint(x * inverse), -1, 1) / inverse
    return rounded
