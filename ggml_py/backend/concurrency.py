"""Protocols of devices and programs that run concurrently, and of their threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ggml_py._moved import former_names
from ggml_py.backend.device import Program
from ggml_py.tensor import Bytes, Tensor


class Event(Protocol):
    """Event in a device's queue of work."""

    def wait(self) -> object:
        """Wait until the device has reached this event."""


@runtime_checkable
class AsyncDevice(Protocol):
    """A device that works on while the host does something else; to read its memory is to wait for
    all that was started before."""

    def send(self, target: Tensor, data: Bytes, after: Event | None) -> None:
        """Copy bytes into a tensor, not before `after`; later work sees them."""

    def start(self, program: Program) -> Event:
        """Run a program; the event is its end."""


CPUs = Sequence[Collection[int]]


@runtime_checkable
class SupportsBatchThreads(Protocol):
    """A device that may use different threads for batches than for single tokens."""

    def set_batch_threads(self, n: int | None) -> None:
        """Set the number of threads for batches; None: the number of `set_threads`."""

    def pin(self, cpus: CPUs, batch_cpus: CPUs | None = None) -> None:
        """Pin thread i to CPU cpus[i % len(cpus)], or unpin all without `cpus`; for batches to
        `batch_cpus`, if given."""


@runtime_checkable
class SteppableProgram(Protocol):
    """A program that can be run in parts."""

    def run_in_parts(self) -> Iterator[None]:
        """Run the program with pauses during which the device may run other programs."""


@runtime_checkable
class HasBarrierStats(Protocol):
    """A program whose threads synchronize at barriers.

    n_barriers  barriers per run
    """

    n_barriers: int

    def barrier_seconds(self) -> float:
        """Return the seconds of one barrier when all threads arrive at once."""
        ...


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__,
        Meets="HasBarrierStats",
        TellsBatches="SupportsBatchThreads",
        Pauses="SteppableProgram",
    )
