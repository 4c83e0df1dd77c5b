"""The reference device: every op in float64 NumPy. Slow; tests compare other devices with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import ggml_ref.ops
from ggml_py.backend import Buffer, Bytes, CompileOptions, HostBuffer, ReadBlocks, aligned_bytes
from ggml_py.backend.kernels import import_families
from ggml_py.machine import host
from ggml_py.machine.shield import raise_noted
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType
from ggml_ref.quants import dequantizer
from ggml_ref.table import Step, table

import_families(ggml_ref.ops)


class RefProgram:
    """A list of (function, node)."""

    def __init__(self, steps: list[tuple[Step, Tensor]]) -> None:
        self.steps = steps

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for step, node in self.steps:
                raise_noted()
                step(node)


class RefBuffer(HostBuffer):
    """Host memory that counts as this device's own, so that a graph split with others copies."""

    def __init__(self, data: Bytes, owner: RefDevice) -> None:
        super().__init__(data, is_host=False)
        self.owner = owner


class RefDevice:
    """Plain host memory and the table of references; tests may create several, by other names."""

    description = "NumPy float64 reference"
    kind = "ref"
    alignment = 64

    def __init__(self, name: str = "ref") -> None:
        self.name = name

    def memory(self) -> tuple[int, int]:
        return host.memory()

    def alloc(self, size: int) -> Buffer:
        return RefBuffer(aligned_bytes(size, self.alignment), self)

    def wrap(self, data: Bytes) -> Buffer | None:
        return RefBuffer(data, self)

    def why_not(self, node: Tensor) -> str:
        return table.why_not(node)

    def can_read(self, buffer: Buffer) -> bool:
        return isinstance(buffer, RefBuffer) and buffer.owner is self

    def prepare_weight(self, weight: Tensor, uses: Sequence[str]) -> None:
        """Return without changing the weight."""

    def block_reader(self, type: GGMLType) -> ReadBlocks | None:
        return dequantizer(type)

    def compile(self, nodes: list[Tensor], options: CompileOptions) -> RefProgram:
        return RefProgram([(table.get(node), node) for node in nodes])

    def set_threads(self, n: int) -> None:
        """Ignore the number: NumPy chooses its threads."""


def devices() -> list[RefDevice]:
    """Return the reference device; entry point of the backend."""
    return [RefDevice()]
