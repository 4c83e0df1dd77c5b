"""Times of kernels, by the device's own clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggml_opencl.table import WG
from ggml_py.backend import KernelTime
from ggml_py.tensor import Tensor

if TYPE_CHECKING:
    import pyopencl as cl


@dataclass(frozen=True)
class BoundKernel:
    """A kernel with its arguments, and the node that it computes, perhaps with others.

    operands  its tensors, if it indexes with data
    """

    kernel: cl.Kernel
    global_size: tuple[int, ...]
    node: Tensor
    operands: tuple[Tensor, ...] = ()

    def enqueue(self, queue: cl.CommandQueue) -> cl.Event:
        import pyopencl as cl

        return cl.enqueue_nd_range_kernel(queue, self.kernel, self.global_size, (WG, 1, 1))


class Profiler:
    """Measures the kernels of one device on request.

    Queues with profiling are slower, so measurements use a separate queue.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self._times: list[KernelTime] | None = None

    @property
    def is_on(self) -> bool:
        return self._times is not None

    @contextmanager
    def times(self) -> Iterator[list[KernelTime]]:
        """Collect the times of the kernels run in the `with` block in a list."""
        before, self._times = self._times, []
        try:
            yield self._times
        finally:
            self._times = before

    def run(self, runs: Sequence[BoundKernel]) -> None:
        """Run them and wait, after all that the device already has to do."""
        import pyopencl as cl

        assert self._times is not None, "profiling is not enabled"
        self.queue.finish()
        keeping = cl.command_queue_properties.PROFILING_ENABLE
        timed = cl.CommandQueue(self.queue.context, properties=keeping)
        events = [bound.enqueue(timed) for bound in runs]
        timed.finish()
        for bound, event in zip(runs, events, strict=True):
            name = bound.kernel.function_name
            clock = event.profile
            self._times.append(KernelTime(bound.node, name, clock.start, clock.end))
