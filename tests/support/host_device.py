"""A device with memory but without kernels, for tests of what holds tensors."""

from __future__ import annotations

from ggml_py.backend import Buffer, HostBuffer, aligned_bytes
from ggml_py.backend.null import NullDevice
from ggml_py.tensor import Tensor


class HostDevice(NullDevice):
    name = "host"

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size))


class NoCopies(HostDevice):
    """A device that stores quantized rows, but cannot convert them."""

    def why_not(self, node: Tensor) -> str:
        return "no copies" if node.op == "CPY" else ""
