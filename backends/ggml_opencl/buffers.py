"""Device memory as a Buffer. Kernels get the whole buffer and a byte offset."""

from __future__ import annotations

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


@contextmanager
def failing(what: str) -> Iterator[None]:
    """BackendError for what OpenCL raises inside."""
    import pyopencl as cl

    try:
        yield
    except cl.Error as e:
        raise BackendError(f"{what}: {e}") from e


class OpenCLBuffer:
    """Zeroed memory of one device; reads and writes wait for what was queued before, and reads
    raise OutOfRange for an index that was found there.
    """

    is_host = False

    def __init__(self, queue: cl.CommandQueue, size: int, faults: Faults) -> None:
        import pyopencl as cl

        self.faults = faults

        self.size = size
        self.queue = queue
        most = queue.device.max_mem_alloc_size
        if size > most:
            raise AllocError(f"{queue.device.name} has no buffers of {size} bytes, at most {most}")
        try:
            flags = cl.mem_flags.READ_WRITE
            self.memory = cl.Buffer(queue.context, flags, max(size, SMALLEST))
            self.clear()
        except cl.Error as e:
            raise AllocError(
                f"{queue.device.name} has no memory for a buffer of {size} bytes: {e}"
            ) from e

    def write(self, offset: int, data: Bytes) -> None:
        import pyopencl as cl

        if data.size:
            host = np.ascontiguousarray(data)
            with failing(f"{self.queue.device.name} cannot be sent {data.size} bytes"):
                cl.enqueue_copy(self.queue, self.memory, host, dst_offset=offset, is_blocking=True)

    def read(self, offset: int, size: int) -> Bytes:
        import pyopencl as cl

        out = np.empty(size, np.uint8)
        if size:
            with failing(f"{self.queue.device.name} failed before {size} bytes were read"):
                cl.enqueue_copy(self.queue, out, self.memory, src_offset=offset, is_blocking=True)
                self.faults.check()
        return out

    def clear(self, value: int = 0) -> None:
        import pyopencl as cl

        if self.size:
            pattern = np.full(1, value, np.uint8)
            cl.enqueue_fill_buffer(self.queue, self.memory, pattern, 0, self.size).wait()
