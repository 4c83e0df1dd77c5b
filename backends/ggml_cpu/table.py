"""The CPU backend's kernels by op; importing a file of `kernels/` adds its kernels."""

from __future__ import annotations

from functools import cache

import ggml_cpu.kernels
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_py.backend.kernels import KernelTable, import_family


@cache
def table() -> KernelTable[Kernel]:
    """Return the table of all kernels. A look-up imports only the files for its op, and no Numba
    (see kernel.py)."""
    return KernelTable("cpu", _declare)


def _declare(op: str) -> None:
    import_family(ggml_cpu.kernels, op)
    for kernel in REGISTRY.by_op.get(op, {}).values():
        table().add(op, kernel, kernel.when, kernel.rank, kernel.first)


def every_kernel() -> list[Kernel]:
    """Return all kernels, including `prepare` kernels."""
    table().ops()
    return list(REGISTRY.kernels.values())
