"""Step times of a run in raw form: converting them to a list during profiling takes time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import KernelTime
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class RecordedTimes:
    """Times of a run.

    ns      start and end of each step per thread, see Executor.run
    labels  (node, kernel name) of each step
    shift   ns to add to get times of `perf_counter_ns`

    A step's time is the interval between thread 0's starts of this step and the next, so it
    includes the wait at a barrier.
    """

    ns: NDArray[np.int64]
    labels: Sequence[tuple[Tensor, str]]
    shift: int

    def times(self) -> Iterator[KernelTime]:
        starts = (self.ns[0, :, 0] + self.shift).tolist()
        threads = (self.ns[:, :-1].swapaxes(0, 1) + self.shift).tolist()
        for i, (node, kernel) in enumerate(self.labels):
            each = tuple((begin, end) for begin, end in threads[i])
            yield KernelTime(node, kernel, starts[i], starts[i + 1], each)
