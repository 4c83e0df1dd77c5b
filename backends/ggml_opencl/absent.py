"""A placeholder for an OpenCL device that is not on this machine: it names the supported ops."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_opencl.fused import fusions
from ggml_opencl.table import Launch, table
from ggml_py.backend.null import NullQueue, SeparateDevice
from ggml_py.fusion import Fusions
from ggml_py.tensor import Tensor

ALIGNMENT = 128


class AbsentDevice(NullQueue, SeparateDevice):
    """A GPU known only by its name: it has no memory, and does not compute."""

    description = "not on this machine"
    kind = "gpu"
    alignment = ALIGNMENT

    def __init__(self, name: str) -> None:
        self.name = name

    def reopen(self, name: str, number: int = 0, n: int = 1) -> AbsentDevice:
        """Return another absent device."""
        return AbsentDevice(name)

    def why_not(self, node: Tensor) -> str:
        return table.why_not(node)

    @property
    def fusions(self) -> Fusions[Launch]:
        return fusions()

    def max_buffer_size(self, total: int | None = None) -> int | None:
        """Return a quarter of the memory, which every OpenCL device gives as one buffer."""
        return None if total is None else total // 4

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Return without changing the weight."""
