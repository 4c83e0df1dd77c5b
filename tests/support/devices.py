"""Devices for tests of splitting: references under other names that refuse some ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import (
    Buffer,
    Bytes,
    CompileOptions,
    HostBuffer,
    Program,
    aligned_bytes,
    set_tensor,
)
from ggml_py.tensor import FLAG_INPUT, FLAG_WEIGHT, Tensor
from ggml_py.types import F32
from ggml_ref.backend import RefBuffer, RefDevice, RefProgram
from ggml_ref.values import load, store


class TestDevice(RefDevice):
    """Refuses the ops named; reads buffers of the devices in `shares` too."""

    __test__ = False

    def __init__(self, name: str, *refused: str, shares: tuple[RefDevice, ...] = ()) -> None:
        super().__init__(name)
        self.refused = refused
        self.shares = shares

    def why_not(self, node: Tensor) -> str:
        return f"no {node.op} here" if node.op in self.refused else super().why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, RefBuffer) and buffer.owner in (self, *self.shares)


class WrongDevice(TestDevice):
    """Computes one op wrong: the last element is one too large."""

    def __init__(self, name: str, op: str) -> None:
        super().__init__(name)
        self.op = op

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> RefProgram:
        program = super().compile(nodes, options)
        program.steps += [(_spoil, t) for t in nodes if t.op == self.op]
        return program


class MainMemoryDevice(TestDevice):
    """Its memory is the host's own, which others may copy weights from."""

    def alloc(self, size: int) -> Buffer:
        return HostBuffer(aligned_bytes(size))

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, HostBuffer) and buffer.is_host


class Moment:
    """The end of a program of a LazyDevice, and what may happen from then on."""

    def __init__(self, device: LazyDevice) -> None:
        self.device = device
        self.over = False
        self.then: list[Callable[[], None]] = []

    def wait(self) -> None:
        self.device.work(self)


class LazyDevice(TestDevice):
    """Takes what it is sent as early as it may, and runs programs as late as it can: when somebody
    waits for one, or reads its memory.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waiting: list[tuple[Program, Moment]] = []
        self.at_work = False

    def alloc(self, size: int) -> Buffer:
        return LazyBuffer(aligned_bytes(size), self)

    def send(self, target: Tensor, data: Bytes, after: Moment | None) -> None:
        def arrive() -> None:
            assert target.buffer is not None
            target.buffer.write(target.offset, data)

        if after is None or after.over:
            arrive()
        else:
            after.then.append(arrive)

    def start(self, program: Program) -> Moment:
        self.waiting.append((program, Moment(self)))
        return self.waiting[-1][1]

    def work(self, until: Moment | None = None) -> None:
        self.at_work = True
        while self.waiting and not (until and until.over):
            program, moment = self.waiting.pop(0)
            program.run()
            moment.over = True
            for happen in moment.then:
                happen()
        self.at_work = False


class LazyBuffer(RefBuffer):
    owner: LazyDevice

    def read(self, offset: int, size: int) -> Bytes:
        if not self.owner.at_work:
            self.owner.work()
        return super().read(offset, size)


def _spoil(t: Tensor) -> None:
    values = load(t)
    values[-1, -1, -1, -1] += 1
    store(t, values)


def given(*ne: int, name: str = "") -> Tensor:
    """An input."""
    t = Tensor(F32, ne, name=name)
    t.flags |= FLAG_INPUT
    return t


def weight(device: RefDevice, *ne: int, name: str = "", seed: int = 1) -> Tensor:
    """Random values in memory of the device."""
    t = Tensor(F32, ne, name=name)
    t.flags |= FLAG_WEIGHT
    t.buffer = device.alloc(t.nbytes)
    set_tensor(t, random(t, seed))
    return t


def random(t: Tensor, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(t.ne[::-1]).astype(np.float32)
