"""What a graph asks of its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from ggml_py.backend import host_array, set_tensor
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import GGMLType
from llama_py.batch import UBatch
from llama_py.graph.params import GraphParams


class GraphInput(Protocol):
    """What a graph asks of each of its inputs."""

    def set_input(self, ubatch: UBatch) -> None:
        """Write the values for this ubatch into the tensors."""

    def can_reuse(self, params: GraphParams) -> bool:
        """Whether the tensors would be the same for params; binds to their memory context."""


@runtime_checkable
class Follows(Protocol):
    """An input that has less to do where token follows token."""

    def follow(self, ubatch: UBatch) -> None:
        """`set_input` for one more token of each sequence, or as many more of one as there were:
        what was set last is still there."""


def new_input(name: str, type: GGMLType, *ne: int) -> Tensor:
    """A leaf that the caller fills before each run."""
    t = Tensor(type, ne, name=name)
    t.flags |= FLAG_INPUT
    return t


def write(t: Tensor, values: npt.NDArray[Any]) -> None:
    """Set an input; one that no node reads has no memory, so there is nothing to set."""
    if t.buffer is not None:
        set_tensor(t, values)


def numbers_of(t: Tensor) -> memoryview | None:
    """Integers of an input, to be changed one by one, where the host has them."""
    values = host_array(t)
    return None if values is None else values.reshape(-1).data


def put(numbers: memoryview, values: Iterable[int]) -> None:
    """The first of them from now on. A call of NumPy, which is to be fetched from memory between
    two tokens, takes longer than a few of these."""
    for i, value in enumerate(values):
        numbers[i] = value
