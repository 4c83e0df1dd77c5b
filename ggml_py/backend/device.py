"""The protocols that every backend has: devices, their memory, and programs of nodes
(ggml-backend-impl.h).

A backend package exports one function in the entry-point group `ggml_py.backends`. The function has
no parameters and returns the list of its devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ggml_py.fusion import FusedNodes
from ggml_py.tensor import Buffer as Buffer
from ggml_py.tensor import Bytes as Bytes
from ggml_py.tensor import Tensor

Work = Tensor | FusedNodes[Any]  # unit of work in a program


class Program(Protocol):
    """Nodes ready to run, again and again, in the order they were compiled."""

    def run(self) -> None:
        """Run every node. Returns when all results are in memory.

        A program that takes long calls `raise_noted` (ggml_py/machine/shield.py) about every 50 ms.
        """


@dataclass(slots=True)
class CompileOptions:
    """Options for compiling nodes.

    progress    called as progress(done, total, kernel) while kernels are compiled
    fuse        several nodes may run as one step; False if every node's value is
                needed
    many        the graph processes several tokens (`SupportsBatchThreads`)
    """

    progress: Callable[[int, int, str], None] | None = None
    fuse: bool = True
    many: bool = False


@runtime_checkable
class Device(Protocol):
    """Device of a backend: allocates memory, checks which nodes it can run, and compiles them."""

    name: str
    description: str
    kind: str  # "cpu", "gpu", "accel" (runs in addition to the CPU), "ref" or "null"
    alignment: int

    def memory(self) -> tuple[int, int]:
        """Return free and total bytes of memory."""

    def alloc(self, size: int) -> Buffer:
        """Allocate zeroed memory; AllocError if there is too little."""

    def wrap(self, data: Bytes) -> Buffer | None:
        """Return a read-only buffer on bytes of the host (an mmap); None if the device must
        copy."""

    def why_not(self, node: Tensor) -> str:
        """Return "" if this device can run the node, else the reason."""

    def can_read(self, buffer: Buffer) -> bool:
        """Return True if kernels of this device can use a tensor in that buffer directly."""

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Repack a loaded weight into the layout that its readers' kernels need.

        Called once per weight.
        """

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> Program:
        """Freeze nodes into a program. All their tensors are allocated. Steps of several nodes
        require a device that `Fuses`."""

    def set_threads(self, n: int) -> None:
        """Set the number of host threads, if the device uses them."""
