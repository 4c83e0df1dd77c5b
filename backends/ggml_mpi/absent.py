"""Stands for a rank that was not started: says what it would run, and counts its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_mpi.device import RankDevice
from ggml_py.backend import Buffer, Bytes, Device, Fuses, LaysOut
from ggml_py.backend.null import NullBuffer, NullDevice
from ggml_py.backend.registry import device as find_device
from ggml_py.fusion import Fusions
from ggml_py.tensor import Tensor

PREFIX = "mpi"


class RankBytes(NullBuffer):
    """Counts bytes that only one rank can read."""

    def __init__(self, size: int, owner: AbsentRank) -> None:
        super().__init__(size)
        self.owner = owner


class AbsentRank(NullDevice):
    """A rank whose CPU is of the same kind as this machine's, which answers for it."""

    kind = RankDevice.kind

    def __init__(self, name: str, like: Device) -> None:
        self.name, self.like = name, like
        self.alignment = like.alignment
        self.description = f"rank {name.removeprefix(PREFIX)}, not started"

    def memory(self) -> tuple[int, int]:
        return self.like.memory()

    def alloc(self, size: int) -> Buffer:
        return RankBytes(size, self)

    def wrap(self, data: Bytes) -> Buffer | None:
        return None

    def why_not(self, node: Tensor) -> str:
        return self.like.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, RankBytes) and buffer.owner is self

    @property
    def fusions(self) -> Fusions[Any]:
        return self.like.fusions if isinstance(self.like, Fuses) else Fusions()

    def layout_of(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        return self.like.layout_of(weight, uses) if isinstance(self.like, LaysOut) else None


def absent(name: str) -> Device:
    """See ggml_py.backend.registry.absent. The first one's memory is the host's."""
    cpu: Any = find_device("cpu")
    if name.removeprefix(PREFIX).strip("0"):
        return AbsentRank(name, cpu)
    here: Device = cpu.again(name)
    here.kind = RankDevice.kind
    return here
