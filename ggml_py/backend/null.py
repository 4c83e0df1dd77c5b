"""Null device without memory or kernels, for planning and tests: plans graphs of any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ggml_py.backend.concurrency import Event
from ggml_py.backend.device import Buffer, Bytes, CompileOptions, Program, Work
from ggml_py.tensor import Tensor


class NullBuffer:
    """Buffer that only counts bytes."""

    is_host = False

    def __init__(self, size: int) -> None:
        self.size = size

    def write(self, offset: int, data: Bytes) -> None:
        """Discard the given bytes."""

    def read(self, offset: int, size: int) -> Bytes:
        return np.zeros(size, np.uint8)

    def clear(self, value: int = 0) -> None:
        """Ignore the value: the buffer has no bytes."""


class OwnedBuffer(NullBuffer):
    """Counts bytes that only one device can read."""

    def __init__(self, size: int, owner: NullDevice) -> None:
        super().__init__(size)
        self.owner = owner


def make_reader(tensors: Iterable[Tensor], name: str) -> Tensor:
    """Make a node that only reads tensors, so that they are unchanged until it runs."""
    node = Tensor(src=tuple(tensors), name=name)
    node.buffer = NullBuffer(0)
    return node


class NullProgram:
    def __init__(self, nodes: list[Tensor]) -> None:
        self.nodes = nodes

    def run(self) -> None:
        """Return without computing values."""


class NullQueue:
    """The methods of an `AsyncDevice` without computation."""

    def send(self, target: Tensor, data: Bytes, after: Event | None) -> None:
        """Discard the bytes and return an event."""

    def start(self, program: Program) -> Event:
        return NullEvent()


class NullEvent:
    """An event that is already complete."""

    def wait(self) -> None:
        """Return at once: the event is complete."""


class NullDevice:
    """Device that accepts every op without computing it."""

    name = "null"
    description = "no memory, no kernels"
    kind = "null"
    alignment = 64

    def memory(self) -> tuple[int, int]:
        return (0, 0)

    def alloc(self, size: int) -> Buffer:
        return NullBuffer(size)

    def wrap(self, data: Bytes) -> Buffer | None:
        return NullBuffer(data.size)

    def why_not(self, node: Tensor) -> str:
        return ""

    def can_read(self, buffer: Buffer) -> bool:
        return True

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Leave the weight unchanged."""

    def compile(self, nodes: Sequence[Work], options: CompileOptions) -> NullProgram:
        return NullProgram([t for t in nodes if isinstance(t, Tensor)])

    def set_threads(self, n: int) -> None:
        """Ignore the number: the device has no threads."""


class SeparateDevice(NullDevice):
    """A device with separate memory, which other devices cannot read and vice versa."""

    def alloc(self, size: int) -> Buffer:
        return OwnedBuffer(size, self)

    def wrap(self, data: Bytes) -> Buffer | None:
        return None

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, OwnedBuffer) and buffer.owner is self


def devices() -> list[NullDevice]:
    """Return the null device; entry point of the backend."""
    return [NullDevice()]
