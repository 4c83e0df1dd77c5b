"""Times of the steps of a run, kept as they came: to make a list of them would take time itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import KernelTime
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class RecordedTimes:
    """Times of a run: ns of each step as Executor.run gives them, the labels (node, kernel), and
    the shift to times of `perf_counter_ns`.

    A step takes from where thread 0 begins it to where that begins the next: with what it waits
    for the others, where all meet.
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
