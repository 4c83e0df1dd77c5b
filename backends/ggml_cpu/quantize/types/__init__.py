"""One quantizer per module, named after its type."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.quantize.format import REGISTERED, Quantizer


@cache
def quantizers() -> dict[str, Quantizer]:
    """Return all quantizers by type name."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return REGISTERED
