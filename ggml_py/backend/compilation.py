"""Protocols of devices that compile kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ggml_py._moved import former_names
from ggml_py.backend.device import CompileOptions, Work
from ggml_py.tensor import Tensor


@runtime_checkable
class SupportsKernelCache(Protocol):
    """A device that compiles kernels when they are first needed, and keeps them: many at once take
    less time than one after the other."""

    def begin(self, types: Iterable[str]) -> None:
        """Begin compiling kernels for weights of the given types, if they will probably be used."""

    def lacks(self, nodes: Sequence[Work]) -> bool:
        """Return True if kernels for the nodes, which need no memory, must still be compiled."""

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Compile all kernels for the nodes; raise BackendError if one fails."""

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        """Compile the kernels for all following calls of `prepare_weight`."""


@runtime_checkable
class BuildsAhead(Protocol):
    """A device that can build the kernels of nodes before these have memory."""

    def build(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Build everything that `compile` will need; BackendError if that fails."""


@runtime_checkable
class HasTarget(Protocol):
    """A device that compiles its kernels for a specific machine."""

    @property
    def target(self) -> str:
        """Description of the machine that kernels are compiled for."""


@runtime_checkable
class NotesKernels(Protocol):
    """A device that finds the kernels of many graphs again without these graphs."""

    def note(self, key: str, nodes: Sequence[Work]) -> None:
        """Store under a key, for later processes, which kernels these need."""

    def has_noted(self, key: str) -> bool:
        """Return True if the cache holds all kernels of a key's list."""


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, KeepsKernels="SupportsKernelCache")
