"""Quantization and float types, one module per type; shared code is in `ggml_cpu.blocks`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.format import REGISTERED, Format, Weight


@cache
def types() -> dict[str, Format]:
    """Return all types by name; the modules of this folder register them."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return REGISTERED


@cache
def formats() -> dict[str, Format]:
    """Return the types with blocks by name: all but the float types."""
    return {name: t for name, t in types().items() if t.dequantize is not None}


@cache
def weights() -> dict[str, Weight]:
    """Return the weight types by name: types with matrix multiplication."""
    return {name: t for name, t in types().items() if isinstance(t, Weight)}


@cache
def activations() -> tuple[Activations, ...]:
    """Return the activation formats of all weight types."""
    both = ((weight.activations, weight.dot_activations) for weight in weights().values())
    return tuple(dict.fromkeys(a for pair in both for a in pair))
