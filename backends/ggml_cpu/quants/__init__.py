"""The types that rows and weights can have, one a file. What they share is in `ggml_cpu.blocks`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.blocks.activations import Activations
from ggml_cpu.blocks.format import REGISTERED, Format, Weight


@cache
def types() -> dict[str, Format]:
    """Every type by name: those that the files of this folder register."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return REGISTERED


@cache
def formats() -> dict[str, Format]:
    """The types of blocks."""
    return {name: t for name, t in types().items() if t.dequantize is not None}


@cache
def weights() -> dict[str, Weight]:
    """The types of weights."""
    return {name: t for name, t in types().items() if isinstance(t, Weight)}


@cache
def activations() -> tuple[Activations, ...]:
    """What the weight types want activations to be packed as."""
    both = ((weight.activations, weight.dot_activations) for weight in weights().values())
    return tuple(dict.fromkeys(a for pair in both for a in pair))
