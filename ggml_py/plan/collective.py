"""Summation of the parts of a tensor on several devices (REDUCE).

A device that can read all parts runs the op like any other. If the parts are in several memories or
machines, an `AllReduce` moves them; `Gather` is the implementation that needs only the devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ggml_py.backend import Buffer, CompileOptions, Device, Program, move
from ggml_py.tensor import Tensor

Group = Sequence[Device | None]  # the device of each part; None for a missing part


class AllReduce(Protocol):
    """Transport that sums parts across devices."""

    def all_reduce(self, tensor: Tensor, group: Group) -> Program:
        """Return a program that stores the sum of a REDUCE in each of its parts.

        tensor  the REDUCE, with memory; its source i is on group[i]
        """


@runtime_checkable
class KnowsOthers(Protocol):
    """A device that has a better way than through this process."""

    all_reduce: AllReduce


class Gather:
    """Copies all parts to the device of the result, adds them on it, and copies the sum back.

    One buffer per size serves every REDUCE of that size, because only one REDUCE runs at a time.
    """

    def __init__(self, options: CompileOptions | None = None) -> None:
        self.options = options or CompileOptions()
        self._buffers: dict[tuple[str, int], Buffer] = {}

    def all_reduce(self, tensor: Tensor, group: Group) -> Program:
        device = [d for d in group if d is not None][-1]  # the result is a view of the last part
        brought: list[tuple[Tensor, Tensor]] = []
        src: list[Tensor | None] = []
        for i, part in enumerate(tensor.src):
            if part is None or _readable(device, part):
                src.append(part)
                continue
            copy = Tensor(part.type, part.ne, name=part.name)
            copy.buffer = self._buffer(device, i, part.nbytes)
            brought.append((part, copy))
            src.append(copy)
        own = Tensor(
            tensor.type, tensor.ne, "REDUCE", tuple(src), tensor.params, tensor.name, tensor.nb
        )
        own.buffer, own.offset, own.flags = tensor.buffer, tensor.offset, tensor.flags
        return _GatherProgram(brought, device.compile([own], self.options))

    def _buffer(self, device: Device, i: int, size: int) -> Buffer:
        key = (device.name, i)
        found = self._buffers.get(key)
        if found is None or found.size < size:
            found = self._buffers[key] = device.alloc(size)
        return found


class _GatherProgram:
    def __init__(self, brought: list[tuple[Tensor, Tensor]], program: Program) -> None:
        self.brought = brought
        self.program = program

    def run(self) -> None:
        for part, copy in self.brought:
            move(part, copy)
        self.program.run()
        for part, copy in self.brought:
            move(copy, part)


def _readable(device: Device, part: Tensor) -> bool:
    return part.buffer is not None and device.can_read(part.buffer)
