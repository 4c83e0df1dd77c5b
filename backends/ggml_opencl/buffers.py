"""Device memory as a Buffer. Kernels get the whole buffer and a byte offset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ggml_py.backend import Bytes
from ggml_py.errors import AllocError, BackendError

if TYPE_CHECKING:
    import pyopencl as cl

    from ggml_opencl.faults import Faults

SMALLEST = 16  # bytes; OpenCL has no empty buffers


_WHAT_TO_DO = {
    "DEVICE_NOT_AVAILABLE": "the device was removed or reset; load the model again, or use another "
    "device",
    "OUT_OF_RESOURCES": "device memory is too low, or the device was reset; use a smaller n_ctx or "
    "n_ubatch or fewer layers there (n_gpu_layers), or load the model again",
    "MEM_OBJECT_ALLOCATION_FAILURE": "device memory is too low; use a smaller n_ctx or n_ubatch, or"
    " fewer layers there (n_gpu_layers)",
}
_opened_by: list[int] = []  # process that opened the devices: driver state does not survive a fork


def opened_here() -> None:
    """Note that a device was opened in this process."""
    _opened_by[:] = [os.getpid()]


@contextmanager
def raise_device_error(what: str) -> Iterator[None]:
    """Raise BackendError for OpenCL errors in the block.

    A process forked after the devices were opened always gets the error.
    """
    import pyopencl as cl

    if _opened_by and _opened_by[0] != os.getpid():
        raise BackendError(
            f"{what}: a forked process cannot use the OpenCL devices of its parent; "
            "start the process with spawn (multiprocessing.get_context), then load the model"
        )
    try:
        yield
    except cl.Error as e:
        advice = next((f"; {text}" for name, text in _WHAT_TO_DO.items() if name in str(e)), "")
        raise BackendError(f"{what}: {e}{advice}") from e


class OpenCLBuffer:
    """Zero-initialized memory of one device.

    Reads and writes wait for earlier work in the queue. Reads raise OutOfRange if a kernel found an
    index out of range.
    """

    is_host = False

    def __init__(self, queue: cl.CommandQueue, size: int, faults: Faults) -> None:
        import pyopencl as cl

        self.faults = faults

        self.size = size
        self.queue = queue
        most = queue.device.max_mem_alloc_size
        if size > most:
            raise AllocError(
                f"buffer of {size} bytes exceeds the limit of {queue.device.name}, {most} bytes; "
                "use a smaller n_ctx or n_ubatch"
            )
        try:
            flags = cl.mem_flags.READ_WRITE
            with raise_device_error(f"{queue.device.name} has no memory for {size} bytes"):
                self.memory = cl.Buffer(queue.context, flags, max(size, SMALLEST))
                self.clear()
        except BackendError as e:
            raise AllocError(str(e)) from e

    def write(self, offset: int, data: Bytes) -> None:
        import pyopencl as cl

        if data.size:
            host = np.ascontiguousarray(data)
            with raise_device_error(f"{self.queue.device.name} cannot receive {data.size} bytes"):
                cl.enqueue_copy(self.queue, self.memory, host, dst_offset=offset, is_blocking=True)

    def read(self, offset: int, size: int) -> Bytes:
        import pyopencl as cl

        out = np.empty(size, np.uint8)
        if size:
            with raise_device_error(f"{self.queue.device.name} failed while reading {size} bytes"):
                cl.enqueue_copy(self.queue, out, self.memory, src_offset=offset, is_blocking=True)
                self.faults.check()
        return out

    def clear(self, value: int = 0) -> None:
        import pyopencl as cl

        if self.size:
            pattern = np.full(1, value, np.uint8)
            with raise_device_error(f"{self.queue.device.name} cannot fill {self.size} bytes"):
                cl.enqueue_fill_buffer(self.queue, self.memory, pattern, 0, self.size).wait()
