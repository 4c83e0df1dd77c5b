"""Times of the steps of a run, kept as they came: to make a list of them would take time itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import KernelTime
from ggml_py.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run that began at `start`; ns of each step, and what these are (node, kernel)."""

    start: int
    ns: NDArray[np.int64]
    labels: Sequence[tuple[Tensor, str]]

    def times(self) -> Iterator[KernelTime]:
        ends = (self.start + np.cumsum(self.ns)).tolist()
        for (node, kernel), before, end in zip(
            self.labels, [self.start, *ends], ends, strict=False
        ):
            yield KernelTime(node, kernel, before, end)
