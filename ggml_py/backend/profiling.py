"""The protocol of devices that tell how long their kernels take."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One run of one kernel for a node, from start to end in nanoseconds of the device's clock.

    threads  when each thread began it, and had done its part, where they are known
    """

    node: Tensor
    kernel: str
    start: int
    end: int
    threads: tuple[tuple[int, int], ...] = ()


@runtime_checkable
class Profiles(Protocol):
    """A device that can tell how long its kernels take."""

    def profiling(self) -> AbstractContextManager[list[KernelTime]]:
        """A context; the kernels that run in it are added to its list."""
