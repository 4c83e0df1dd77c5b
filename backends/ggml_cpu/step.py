"""One kernel run for one node, and where its operands lie."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_cpu.kernel import Kernel
from ggml_cpu.params import View
from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a kernel: its operands (dst, src0, src1, ...), and `op_params` and scratch shared
    by all threads where they are not the node's own (a step that runs several nodes).

    writes  numbers of the operands that it changes besides dst
    unit    the last op params, which only the kernel itself reads, not those that prepare for it
    ready   numbers of the operands that the step before has prepared for this one as well, as its
            operands of the same numbers: their bytes may be another's by then
    """

    kernel: Kernel
    node: Tensor
    operands: tuple[Tensor | None, ...]
    op_params: bytes = b""
    scratch: Tensor | None = None
    writes: tuple[int, ...] = ()
    unit: bytes = b""
    ready: tuple[int, ...] = ()

    def params(self) -> bytes:
        params = self.params_to_prepare()
        return params[: len(params) - len(self.unit)] + self.unit

    def params_to_prepare(self) -> bytes:
        return self.op_params or self.node.op_params()


def address(t: Tensor) -> int:
    """Return the address of the tensor's first byte in this process."""
    assert isinstance(t.buffer, HostBuffer), f"{t} is not in host memory"
    return t.buffer.base + t.offset


def view(t: Tensor | None) -> View | None:
    return None if t is None else View(address(t), t.ne, t.nb)
