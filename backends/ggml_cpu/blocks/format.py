"""What a block type brings to ops that move rows: to f32 and back, in ggml's own bytes."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from ggml_cpu.quants.weight import weights
from ggml_py.types import BY_NAME, GGMLType

Function = Callable[..., Any]


@dataclass(frozen=True)
class Format:
    """A block type. Both functions are `@fn` and take whole blocks: n elements.

    dequantize   dequantize(src, n, dst): blocks to f32
    quantize     quantize(src, n, dst): f32 to blocks, as ggml-quants.c:quantize_row_*_ref rounds
    """

    type: GGMLType
    dequantize: Function
    quantize: Function | None = None


_FORMATS: dict[str, Format] = {}


def register(
    name: str, *, dequantize: Function | None = None, quantize: Function | None = None
) -> None:
    """Declare a format. A type with a `Weight` that dequantizes need not do so again."""
    found = dequantize or weights()[name].dequantize
    if found is None:
        raise ValueError(f"format {name} has no dequantize, and neither has its weight type")
    _FORMATS[name] = Format(BY_NAME[name], found, quantize)


@cache
def formats() -> dict[str, Format]:
    """Every block type by name: those of this package's modules, and the weight types."""
    import ggml_cpu.blocks

    for module in pkgutil.iter_modules(ggml_cpu.blocks.__path__):
        import_module(f"ggml_cpu.blocks.{module.name}")
    others = {n: w.dequantize for n, w in weights().items() if w.dequantize is not None}
    return {n: Format(BY_NAME[n], f) for n, f in others.items()} | _FORMATS
