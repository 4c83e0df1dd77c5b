"""A step: one run of a kernel for a node, with its operands."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_cpu.kernel import Kernel
from ggml_cpu.params import View
from ggml_py.backend import HostBuffer
from ggml_py.tensor import Tensor


@dataclass(slots=True, eq=False)
class Step:
    """One run of a kernel with its operands (dst, src0, src1, ...).

    op_params, scratch  op params and shared scratch of a fused kernel, instead of the node's
    writes  indices of written operands, except dst
    unit    last bytes of the op params; the kernel reads them, but its `prepare` kernels do not
    ready   indices of operands that the previous step has also prepared for this step, as its
            operands of the same indices; the operands' memory may already be reused
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
