"""The CPU backend's kernels by op, filled by the files of `kernels/` as they are imported."""

from __future__ import annotations

from functools import cache

import ggml_cpu.kernels
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_py.kernels import KernelTable, import_families


@cache
def table() -> KernelTable[Kernel]:
    """Every declared kernel; imports all kernel families on first use (no Numba, see kernel.py)."""
    import_families(ggml_cpu.kernels)
    found: KernelTable[Kernel] = KernelTable("cpu")
    for kernel in REGISTRY.kernels.values():
        for op in kernel.ops:
            found.add(op, kernel, kernel.when, kernel.rank, kernel.first)
    return found
