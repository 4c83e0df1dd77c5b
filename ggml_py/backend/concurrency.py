"""Protocols of devices and programs that work at the same time as others, and their threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, runtime_checkable

from ggml_py.backend.device import Program
from ggml_py.tensor import Bytes, Tensor


class Event(Protocol):
    """A moment in what a device does."""

    def wait(self) -> object:
        """Return when the device has come that far."""


@runtime_checkable
class AsyncDevice(Protocol):
    """A device that works on while the host does something else; to read its memory is to wait for
    all that was started before."""

    def send(self, target: Tensor, data: Bytes, after: Event | None) -> None:
        """Copy bytes into a tensor, not before `after`. What is started next sees them."""

    def start(self, program: Program) -> Event:
        """Run a program; the event is its end."""


CPUs = Sequence[Collection[int]]


@runtime_checkable
class TellsBatches(Protocol):
    """A device that may run graphs of several tokens on other threads than those of one."""

    def set_batch_threads(self, n: int | None) -> None:
        """Their number; None: as `set_threads` says."""

    def pin(self, cpus: CPUs, batch_cpus: CPUs | None = None) -> None:
        """Thread i may run on the CPUs cpus[i % len(cpus)] only, or on all of no `cpus`; those of
        batches on others if there are `batch_cpus`."""


@runtime_checkable
class Pauses(Protocol):
    """A program that can be run in parts."""

    def run_in_parts(self) -> Iterator[None]:
        """`Program.run`, with pauses in which the device may run other programs."""


@runtime_checkable
class Meets(Protocol):
    """A program whose threads wait for each other.

    n_barriers  how often, in one run
    """

    n_barriers: int

    def barrier_seconds(self) -> float:
        """What that takes each time, if all come at once."""
        ...
