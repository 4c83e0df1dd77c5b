"""Invalid indices in a kernel's data. A work item records the first invalid index and skips its
access; the error is raised when results are read (kernels/_common.cl: IN_RANGE).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from ggml_py.backend.indices import out_of_range
from ggml_py.errors import OutOfRange

if TYPE_CHECKING:
    import pyopencl as cl

    from ggml_opencl.profiler import BoundKernel


class Faults:
    """Record of one device's queue: the number of the step, the index in two words, and the
    limit of the index. Only programs with checks read it.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.may_be = False  # True if a step with checks has run since the last check
        self._words = np.zeros(4, np.int32)
        self._memory: cl.Buffer | None = None
        self._numbers = itertools.count(1)
        self._steps: WeakValueDictionary[int, BoundKernel] = WeakValueDictionary()

    def arguments(self) -> tuple[cl.Buffer, np.int32]:
        """Return the last arguments of a kernel that checks: the record, the step's number."""
        import pyopencl as cl

        if self._memory is None:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            self._memory = cl.Buffer(self.queue.context, flags, hostbuf=np.zeros(4, np.int32))
        return self._memory, np.int32(next(self._numbers))

    def remember(self, number: int, step: BoundKernel) -> None:
        self._steps[number] = step

    def check(self) -> None:
        """Raise OutOfRange for an index noted since the last call; waits for queued work."""
        import pyopencl as cl

        if not self.may_be or self._memory is None:
            return
        self.may_be = False
        cl.enqueue_copy(self.queue, self._words, self._memory, is_blocking=True)
        number, low, high, n = (int(x) for x in self._words)
        if number:
            cl.enqueue_copy(self.queue, self._memory, np.zeros(4, np.int32), is_blocking=True)
            step, index = self._steps.get(number), high << 32 | low & 0xFFFFFFFF
            if step is None:
                raise OutOfRange(
                    f"index must be in [0, {n}), got {index}, in a step that no longer exists"
                )
            raise out_of_range(step.node, index, n, step.operands)
