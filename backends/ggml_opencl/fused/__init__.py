"""Launchers of steps of several nodes, one family a file, with kernels in `kernels/fused/`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_opencl.table import FUSIONS, Launch
from ggml_py.fusion import Fusions


@cache
def fusions() -> Fusions[Launch]:
    """Return every declared step; imports all files on first use."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return FUSIONS
