"""The meaning of the bytes of a block type: one module per type, with the type's name.

A module has `dequantize(blocks: uint8[n, type_size]) -> float32[n, block_size]` and, where ggml has
a reference quantization, `quantize(x: float[...]) -> bytes` (ggml-quants.c:quantize_row_*_ref).
Arithmetic is float32 in ggml's order, so that bytes and values equal ggml's. A type that ggml
quantizes by data about the model has `approximate(x)` instead: near values, in different bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import numpy.typing as npt

from ggml_py.types import GGMLType

Dequantize = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float32]]
Quantize = Callable[[npt.NDArray[np.floating]], bytes]


@cache
def _module(name: str) -> ModuleType | None:
    path = f"{__name__}.{name}"
    return import_module(path) if find_spec(path) else None


def dequantizer(type: GGMLType) -> Dequantize | None:
    """Return the function from blocks to values, or None for an unknown type."""
    return getattr(_module(type.name), "dequantize", None)


def quantizer(type: GGMLType) -> Quantize | None:
    """Return the function from values to blocks, or None if the type has none."""
    module = _module(type.name)
    return getattr(module, "quantize", None) or getattr(module, "approximate", None)


def quantizes_as_ggml(type: GGMLType) -> bool:
    """Return True if blocks equal ggml's blocks, so that ops can quantize to this type."""
    return hasattr(_module(type.name), "quantize")
