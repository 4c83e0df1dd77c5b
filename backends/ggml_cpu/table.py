"""The CPU backend's kernels by op, filled by the files of `kernels/` as they are imported."""

from __future__ import annotations

from functools import cache

import ggml_cpu.kernels
from ggml_cpu.kernel import REGISTRY, Kernel
from ggml_py.backend.kernels import KernelTable, import_family


@cache
def table() -> KernelTable[Kernel]:
    """Return every kernel. The families of the ops that are asked for are imported then, no others
    (no Numba, see kernel.py)."""
    return KernelTable("cpu", _declare)


def _declare(op: str) -> None:
    import_family(ggml_cpu.kernels, op)
    for kernel in REGISTRY.by_op.get(op, {}).values():
        table().add(op, kernel, kernel.when, kernel.rank, kernel.first)


def every_kernel() -> list[Kernel]:
    """Return kernels of all ops, and those that prepare for them."""
    table().ops()
    return list(REGISTRY.kernels.values())
