"""Interface of graph inputs."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from ggml_py.backend import host_array, set_tensor
from ggml_py.tensor import FLAG_INPUT, Tensor
from ggml_py.types import GGMLType
from llama_py.batch import UBatch
from llama_py.graph.params import GraphParams


class GraphInput(Protocol):
    """Interface that a graph requires of each input."""

    def set_input(self, ubatch: UBatch) -> None:
        """Write the values for this ubatch into the tensors."""

    def can_reuse(self, params: GraphParams) -> bool:
        """Return True if params would give the same tensors; binds to their memory context."""


@runtime_checkable
class Follows(Protocol):
    """An input that has less to do where token follows token."""

    def follow(self, ubatch: UBatch) -> None:
        """Set inputs for the next token of each sequence, or the same number of further tokens of
        one; the tensors still have their last values."""


def new_input(name: str, type: GGMLType, *ne: int) -> Tensor:
    """Create a leaf that the caller fills before each run."""
    t = Tensor(type, ne, name=name)
    t.flags |= FLAG_INPUT
    return t


def write(t: Tensor, values: npt.NDArray[Any]) -> None:
    """Set an input; an input that no node reads has no memory and is skipped."""
    if t.buffer is not None:
        set_tensor(t, values)


def read_numbers(t: Tensor) -> memoryview | None:
    """Return an input's numbers as a memoryview if they are in host memory, else None. Between two
    tokens, NumPy's code is no longer in the CPU cache, so setting a memoryview is faster."""
    values = host_array(t)
    return None if values is None else values.reshape(-1).data
