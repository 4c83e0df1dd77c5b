"""A quantizer a file, called by its type."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.quantize.format import REGISTERED, Quantizer


@cache
def quantizers() -> dict[str, Quantizer]:
    """Return every quantizer by the name of its type."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return REGISTERED
