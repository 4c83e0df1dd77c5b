"""The table of launchers: op -> the kernel runs that compute it. It needs no OpenCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ggml_py.backend.kernels import KernelTable, When, always
from ggml_py.fusion import Fusions
from ggml_py.tensor import Tensor
from ggml_py.types import GGMLType

WG = 64  # items of every work group; _common.cl has the same value


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of one kernel.

    family, kernel   the .cl file, and the function in the file
    tensors          its tensor arguments, in order
    groups           number of work groups of WG items in each dimension
    scalars          its other arguments: int as int32, float as float32
    defines          macros of the program, in addition to T0, T1, ..: the types of the tensors
    types            type names that replace the tensors' types
    checked          the kernel indexes with data: its last arguments are CHECKED
    scratch          tensors that belong to no node: data between the runs of one node
    macros           lines of further macros, which are not numbers
    """

    family: str
    kernel: str
    tensors: tuple[Tensor, ...]
    groups: tuple[int, int, int]
    scalars: tuple[int | float, ...] = ()
    defines: tuple[tuple[str, int], ...] = ()
    types: tuple[str, ...] = ()
    checked: bool = False
    scratch: tuple[Tensor, ...] = ()
    macros: str = ""

    def type_names(self) -> tuple[str, ...]:
        return self.types or tuple(t.type.name for t in self.tensors)

    def is_empty(self) -> bool:
        return 0 in self.groups


Launcher = Callable[[Tensor], list[Launch]]
Decorated = TypeVar("Decorated", bound=Launcher)


class OpenCLTable(KernelTable[Launcher]):
    def op(self, name: str, when: When = always, rank: int = 0) -> Callable[[Decorated], Decorated]:
        """Register a launcher for an op."""

        def register(launcher: Decorated) -> Decorated:
            self.add(name, launcher, when, rank)
            return launcher

        return register

    def launches(self, node: Tensor) -> list[Launch]:
        """Return the kernel runs of a node that have something to do."""
        return [run for run in self.get(node)(node) if not run.is_empty()]


table = OpenCLTable("opencl")
FUSIONS: Fusions[Launch] = Fusions()  # launchers of several nodes
fuse = FUSIONS.fuse


def items(n: int) -> tuple[int, int, int]:
    """Return the groups for n items in one dimension."""
    return (-(-n // WG), 1, 1)


def defines(**values: int) -> tuple[tuple[str, int], ...]:
    return tuple(values.items())


def block_macros(type: GGMLType) -> tuple[tuple[str, int], ...]:
    """Return values and bytes of a block that a kernel makes, as macros."""
    return defines(SPAN=type.block_size, BLOCK=type.type_size)
