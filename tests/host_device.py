"""A device with memory but without kernels, for tests of what holds tensors."""

from __future__ import annotations

from ggml_py.backend import Buffer, HostBuffer, aligned_bytes
from ggml_py.null import NullDevice


class HostDevice(NullDevice):
    name = "host"

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size))
