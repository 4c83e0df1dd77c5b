"""Devices for tests of splitting: references under other names that refuse some ops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggml_py.backend import Buffer, CompileOptions, set_tensor
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
