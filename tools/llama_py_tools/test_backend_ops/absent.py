"""Stands for the devices of a backend that has none on this machine: says what they could run."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.null import NullDevice
from ggml_py.tensor import Tensor


class AbsentDevice(NullDevice):
    description = "no device here; what the kernels take"
    kind = "gpu"

    def __init__(self, backend: str, why_not: Callable[[Tensor], str]) -> None:
        self.name = backend
        self._why_not = why_not

    def why_not(self, node: Tensor) -> str:
        return self._why_not(node)
