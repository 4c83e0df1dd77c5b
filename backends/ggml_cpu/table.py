"""The CPU backend's kernels by op, filled by the files of `kernels/` as they are imported."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_py.kernels import KernelTable


@cache
def table() -> KernelTable[Kernel]:
    """Every declared kernel; imports all kernel families on first use (no Numba, see kernel.py)."""
    import ggml_cpu.kernels

    for module in pkgutil.iter_modules(ggml_cpu.kernels.__path__):
        import_module(f"ggml_cpu.kernels.{module.name}")
    found: KernelTable[Kernel] = KernelTable("cpu")
    for kernel in REGISTRY.kernels.values():
        if kernel.op:
            found.add(kernel.op, kernel, kernel.when)
    return found
