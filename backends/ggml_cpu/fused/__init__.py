"""Fused kernels, which compute several nodes, and their steps; one module per family."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.fusion import FUSIONS
from ggml_cpu.step import Step
from ggml_py.fusion import Fusions


@cache
def fusions() -> Fusions[Step]:
    """Return every declared step; imports all files on first use (no Numba, see kernel.py)."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return FUSIONS
