"""OpenCL devices opencl0, opencl1, ..., in the order of the platforms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import ggml_opencl.ops
from ggml_opencl.absent import ALIGNMENT, AbsentDevice
from ggml_opencl.buffers import OpenCLBuffer, opened_here, raise_device_error
from ggml_opencl.fused import fusions
from ggml_opencl.program import Builder, OpenCLProgram, launches
from ggml_opencl.runtime import use_installed
from ggml_opencl.table import Launch, table
from ggml_py.backend import Buffer, Bytes, CompileOptions, KernelTime, Work
from ggml_py.backend.kernels import import_families
from ggml_py.errors import BackendError
from ggml_py.fusion import Fusions
from ggml_py.machine import host
from ggml_py.machine.extras import install_hint
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    import pyopencl as cl

import_families(ggml_opencl.ops)

NO_DEVICE = "no OpenCL device found; install the driver of your GPU, or a driver for the CPU: "


class OpenCLDevice:
    """An OpenCL device with its context and two queues.

    `queue` runs programs in order; `arrivals` transfers data at the same time.
    """

    alignment = ALIGNMENT

    def __init__(self, name: str, device: cl.Device) -> None:
        import pyopencl as cl

        self.name = name
        self.description = f"{device.name.strip()} ({device.platform.name.strip()})"
        self.kind = "accel" if device.type & cl.device_type.CPU else "gpu"
        try:
            # The attribute keeps the context alive: on some drivers, queues alone do not.
            self.context = context = cl.Context([device])
            self.queue, self.arrivals = cl.CommandQueue(context), cl.CommandQueue(context)
            opened_here()
        except cl.Error as e:
            raise BackendError(f"{self.description} cannot be opened: {e}") from e
        self.builder = Builder(self.queue)
        self._total = int(device.global_mem_size)
        self._sent: list[cl.Event] = []
        self._in_flight: list[tuple[cl.Event, list[cl.Event]]] = []

    def reopen(self, name: str, number: int = 0, n: int = 1) -> OpenCLDevice:
        """Open the same device again, with separate memory."""
        other = OpenCLDevice(name, self.queue.device)
        other.kind = self.kind
        return other

    def memory(self) -> tuple[int, int]:
        """Return available and total memory; these differ only for memory shared with the host."""
        if not self.queue.device.host_unified_memory:
            return self._total, self._total
        return min(host.memory()[0], self._total), self._total

    def max_buffer_size(self, total: int | None = None) -> int:
        """Return the driver's maximum buffer size, scaled to `total` memory if given."""
        most, own = int(self.queue.device.max_mem_alloc_size), self._total
        return most if total is None else max(total * most // own, total // 4)

    def alloc(self, size: int) -> Buffer:
        return OpenCLBuffer(self.queue, size, self.builder.faults)

    def wrap(self, data: Bytes) -> Buffer | None:
        """Return None: weights are uploaded once."""
        return None

    def why_not(self, node: Tensor) -> str:
        return table.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, OpenCLBuffer) and buffer.queue is self.queue

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Return without changing the weight."""

    @property
    def fusions(self) -> Fusions[Launch]:
        return fusions()

    def build(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        self.builder.build(launches(nodes), options)

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> OpenCLProgram:
        return self.builder.program(nodes, options)

    def send(self, target: Tensor, data: Bytes, after: cl.Event | None) -> None:
        import pyopencl as cl

        assert isinstance(target.buffer, OpenCLBuffer), f"{target} is not on {self.name}"
        wait_for = [] if after is None else [after]
        with raise_device_error(f"{self.name} cannot receive {target}"):
            sent = cl.enqueue_copy(
                self.arrivals,
                target.buffer.memory,
                data,
                dst_offset=target.offset,
                wait_for=wait_for,
                is_blocking=False,
            )
        self._sent.append(sent)

    def start(self, program: OpenCLProgram) -> cl.Event:
        import pyopencl as cl

        with raise_device_error(f"{self.name} failed during computation"):
            if self._sent:
                self.arrivals.flush()
                cl.enqueue_barrier(self.queue, wait_for=self._sent)
            program.enqueue()
            done = cl.enqueue_marker(self.queue)
            self.queue.flush()
        # send events keep their data alive, and releasing them blocks
        self._in_flight = [pair for pair in self._in_flight if not _is_complete(pair[0])]
        self._in_flight.append((done, self._sent))
        self._sent = []
        return done

    def profiling(self) -> AbstractContextManager[list[KernelTime]]:
        """Collect kernel times in the `with` block, from the device's events.

        Programs then run sequentially, on a queue with profiling enabled.
        """
        return self.builder.profiler.times()

    def set_threads(self, n: int) -> None:
        """Ignore `n`: the OpenCL runtime chooses its threads."""


def _is_complete(event: cl.Event) -> bool:
    return bool(event.command_execution_status <= 0)  # complete, or an error


def absent(name: str) -> AbsentDevice:
    """Return a placeholder of a missing device, with all kernels, that needs no OpenCL."""
    return AbsentDevice(name)


def devices() -> list[OpenCLDevice]:
    """Return all OpenCL devices (entry point); BackendError without pyopencl or devices."""
    try:
        import pyopencl as cl
    except ImportError as e:
        raise BackendError(
            f"the OpenCL backend needs pyopencl: {install_hint('opencl')} ({e})"
        ) from e
    use_installed()
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as e:
        raise BackendError(f"{NO_DEVICE}{install_hint('pocl')} ({e})") from e
    if not found:
        raise BackendError(NO_DEVICE + install_hint("pocl"))
    return [OpenCLDevice(f"opencl{i}", device) for i, device in enumerate(found)]
