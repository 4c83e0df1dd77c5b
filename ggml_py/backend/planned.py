"""Devices that plan like real devices without computing, to measure models of any size.

A planned device has the decisions of a real device: supported nodes, fused steps, readable memory
and weight layouts. Its memory only counts bytes, and its programs are empty. Models and contexts
are created with the usual code, decisions and sizes, but quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggml_py._moved import former_names
from ggml_py.backend.abilities import (
    SCATTERED,
    CachesExperts,
    ExpertStats,
    ExpertWeights,
    FileWeight,
    Fuses,
    LimitsBuffers,
    SupportsRepacking,
)
from ggml_py.backend.concurrency import AsyncDevice
from ggml_py.backend.device import Buffer, Bytes, Device
from ggml_py.backend.null import NullBuffer, NullDevice, NullQueue
from ggml_py.fusion import Fusions
from ggml_py.tensor import Tensor


@dataclass(slots=True, eq=False)
class PlannedBuffer(NullBuffer):
    """Buffer that counts bytes. `like` is a small buffer of the real device; `mapped` bytes are
    already in host memory."""

    size: int
    like: Buffer
    mapped: bool = False
    is_host: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_host = self.like.is_host


class PlanningDevice(NullDevice):
    """Stand-in for a real device.

    free     bytes of free memory; None: the free memory of the real device
    here     True for a device of this machine
    repack   True if weights are repacked like on the real device
    largest  maximum bytes of one buffer; None: no limit
    asked    bytes of the largest requested buffer
    """

    def __init__(self, device: Device, free: int | None = None) -> None:
        self.device = device
        self.name, self.description, self.kind = device.name, device.description, device.kind
        self.alignment = device.alignment
        self.asked = 0
        self.repack = True
        self._like = device.alloc(device.alignment)
        self.limit(free)

    def limit(self, free: int | None) -> None:
        """Set the free bytes and the resulting buffer limit."""
        self.free = free
        device = self.device
        self.largest = device.max_buffer_size(free) if isinstance(device, LimitsBuffers) else None

    def memory(self) -> tuple[int, int]:
        """Return the free memory that decides shares; a total of 0 disables refusals."""
        return (self.device.memory()[0] if self.free is None else self.free), 0

    def alloc(self, size: int) -> Buffer:
        self.asked = max(self.asked, size)
        return PlannedBuffer(size, self._like)

    def wrap(self, data: Bytes) -> Buffer | None:
        if self.device.wrap(data[:0]) is None:
            return None
        return PlannedBuffer(data.size, self._like, mapped=True)

    def why_not(self, node: Tensor) -> str:
        return self.device.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        like = buffer.like if isinstance(buffer, PlannedBuffer) else buffer
        return self.device.can_read(like)

    def repacked_layout(self, weight: Tensor, uses: Sequence[str]) -> tuple[str, int] | None:
        if not self.repack or not isinstance(self.device, SupportsRepacking):
            return None
        return self.device.repacked_layout(weight, uses)

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Set the layout and the bytes that the weight would have."""
        if (found := self.repacked_layout(weight, uses)) is not None:
            weight.layout, size = found
            weight.buffer, weight.offset = self.alloc(size), 0

    def can_cache(self, layers: Sequence[ExpertWeights], budget: int) -> int:
        if not self.repack or not isinstance(self.device, CachesExperts):
            return 0
        return self.device.can_cache(layers, budget)

    def cache_experts(self, layers: Sequence[ExpertWeights], budget: int) -> ExpertStats:
        """Set the layout that the weights would have."""
        for t in (w.tensor for layer in layers for w in layer.weights):
            found = self.repacked_layout(t, ("MUL_MAT_ID",))
            t.layout = ("" if found is None else found[0]) + SCATTERED
            t.buffer, t.offset = self.alloc(8 * t.ne[2]), 0
        return ExpertStats(self.can_cache(layers, budget))

    def measure_reads(self, weights: Sequence[FileWeight]) -> float:
        return self.device.measure_reads(weights) if isinstance(self.device, CachesExperts) else 0.0

    @property
    def fusions(self) -> Fusions[Any]:
        return self.device.fusions if isinstance(self.device, Fuses) else Fusions()


class AsyncPlanningDevice(NullQueue, PlanningDevice):
    """Stand-in for an asynchronous device: graphs have the same number of copies."""


def planning_devices(
    devices: Sequence[Device], free: Sequence[int | None] = ()
) -> list[PlanningDevice]:
    """Return one planning device for each device, with `free` bytes of memory."""
    each = [*free, *[None] * len(devices)]
    return [
        (AsyncPlanningDevice if isinstance(d, AsyncDevice) else PlanningDevice)(d, n)
        for d, n in zip(devices, each, strict=False)
    ]


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__,
        Planned="PlanningDevice",
        PlannedAsync="AsyncPlanningDevice",
        planned="planning_devices",
    )
