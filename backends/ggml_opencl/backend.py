"""OpenCL devices: opencl0, opencl1, ... in the order in which the platforms list them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggml_opencl.buffers import OpenCLBuffer
from ggml_opencl.ops import FAMILIES
from ggml_opencl.program import Builder, OpenCLProgram
from ggml_opencl.table import table
from ggml_py.backend import Buffer, Bytes, CompileOptions
from ggml_py.errors import BackendError
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    import pyopencl as cl

__all__ = ["FAMILIES", "OpenCLDevice", "devices"]

log = logging.getLogger("llama_py")


class OpenCLDevice:
    """One device with its context and one in-order queue."""

    alignment = 128

    def __init__(self, index: int, device: cl.Device) -> None:
        import pyopencl as cl

        self.name = f"opencl{index}"
        self.description = f"{device.name.strip()} ({device.platform.name.strip()})"
        self.kind = "cpu" if device.type & cl.device_type.CPU else "gpu"
        try:
            self.queue = cl.CommandQueue(cl.Context([device]))
        except cl.Error as e:
            raise BackendError(f"{self.description} cannot be opened: {e}") from e
        self.builder = Builder(self.queue)
        self._total = int(device.global_mem_size)

    def memory(self) -> tuple[int, int]:
        """OpenCL tells only the total; a device that shares the host's memory has what is free."""
        if not self.queue.device.host_unified_memory:
            return self._total, self._total
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(free, self._total), self._total

    def alloc(self, size: int) -> Buffer:
        return OpenCLBuffer(self.queue, size)

    def wrap(self, data: Bytes) -> Buffer | None:
        """Weights are uploaded, once."""
        return None

    def why_not(self, node: Tensor) -> str:
        return table.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, OpenCLBuffer) and buffer.queue is self.queue

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Weights stay as they are."""

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> OpenCLProgram:
        launches = [run for node in nodes if not node.is_empty() for run in table.launches(node)]
        return self.builder.program(launches, options)

    def set_threads(self, n: int) -> None:
        """The OpenCL runtime decides."""


def devices() -> list[OpenCLDevice]:
    """Entry point. BackendError without pyopencl; an empty list without any OpenCL platform."""
    try:
        import pyopencl as cl
    except ImportError as e:
        raise BackendError(
            f"the OpenCL backend needs pyopencl: pip install 'llama-py[opencl]' ({e})"
        ) from e
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as e:
        log.info("no OpenCL device: %s; 'llama-py[pocl]' brings one that runs on the CPU", e)
        return []
    return [OpenCLDevice(i, device) for i, device in enumerate(found)]
