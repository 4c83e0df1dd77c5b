"""A placeholder for a missing rank, which names ops that the rank would run and counts memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggml_mpi.device import RankDevice
from ggml_py.backend import Device, Fuses, SupportsRepacking
from ggml_py.backend.null import SeparateDevice
from ggml_py.backend.registry import device as find_device
from ggml_py.fusion import Fusions
from ggml_py.tensor import Tensor

PREFIX = "mpi"


class AbsentRank(SeparateDevice):
    """A rank that is not started; this machine's CPU, of the same type, answers for it."""

    kind = RankDevice.kind

    def __init__(self, name: str, like: Device) -> None:
        self.name, self.like = name, like
        self.alignment = like.alignment
        self.description = f"rank {name.removeprefix(PREFIX)}, not started"

    def memory(self) -> tuple[int, int]:
        return self.like.memory()

    def why_not(self, node: Tensor) -> str:
        return self.like.why_not(node)

    @property
    def fusions(self) -> Fusions[Any]:
        return self.like.fusions if isinstance(self.like, Fuses) else Fusions()

    def repacked_layout(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        return (
            self.like.repacked_layout(weight, uses)
            if isinstance(self.like, SupportsRepacking)
            else None
        )


def absent(name: str) -> Device:
    """See ggml_py.backend.registry.absent. The first one's memory is the host's."""
    cpu: Any = find_device("cpu")
    if name.removeprefix(PREFIX).strip("0"):
        return AbsentRank(name, cpu)
    here: Device = cpu.reopen(name)
    here.kind = RankDevice.kind
    return here
