"""A backend that can do one thing: add float32 tensors, in NumPy, in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ggml_py.backend import Buffer, Bytes, CompileOptions, HostBuffer, aligned_bytes
from ggml_py.backend.kernels import KernelTable
from ggml_py.tensor import Tensor, strided_view

Kernel = Callable[[Tensor], None]
table: KernelTable[Kernel] = KernelTable("toy")


def values(t: Tensor) -> npt.NDArray[np.float32]:
    """The tensor's elements [ne3, ne2, ne1, ne0], where they are."""
    assert isinstance(t.buffer, HostBuffer)
    return strided_view(t, t.buffer.view(t.offset, t.nbytes))


def add(node: Tensor) -> None:
    """a + b, with b repeated to a's shape."""
    a, b = (values(t) for t in node.src if t is not None)
    times = [n // m for n, m in zip(a.shape, b.shape, strict=True)]
    values(node)[...] = a + np.tile(b, times)


def all_f32(node: Tensor) -> str:
    """Why `add` cannot run the node; "" if it can."""
    other = [t for t in (node, *node.src) if t is not None and t.type.name != "f32"]
    return f"needs f32; got {other[0]}" if other else ""


table.add("ADD", add, all_f32)


class ToyProgram:
    """Nodes with their kernels."""

    def __init__(self, nodes: list[Tensor]) -> None:
        self.steps = [(table.get(t), t) for t in nodes if not t.is_empty()]

    def run(self) -> None:
        for kernel, node in self.steps:
            kernel(node)


class ToyDevice:
    """The only one. Its memory is the host's, so nothing is copied to and fro."""

    name = "toy"
    description = "adds numbers"
    kind = "accel"  # works beside the CPU, which does the rest
    alignment = 64

    def memory(self) -> tuple[int, int]:
        return (0, 0)  # not known

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size, self.alignment))

    def wrap(self, data: Bytes) -> Buffer | None:
        return HostBuffer(data)

    def why_not(self, node: Tensor) -> str:
        return table.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, HostBuffer) and buffer.is_host

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Weights stay as they are."""

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> ToyProgram:
        return ToyProgram(nodes)

    def set_threads(self, n: int) -> None:
        """NumPy adds with one."""


def devices() -> list[ToyDevice]:
    """Entry point."""
    return [ToyDevice()]
