"""Protocols of devices that compile kernels: when they do, and what for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from ggml_py.backend.device import CompileOptions, Work
from ggml_py.tensor import Tensor


@runtime_checkable
class KeepsKernels(Protocol):
    """A device that compiles kernels when they are first needed, and keeps them: many at once take
    less time than one after the other."""

    def begin(self, types: Iterable[str]) -> None:
        """A model with weights of these types is about to be loaded: start what compiles, if it is
        likely to be needed."""

    def lacks(self, nodes: Sequence[Work]) -> Callable[[], bool]:
        """What tells, whenever it is asked, whether kernels for these, which need not have memory,
        are still to be compiled. It does not keep the nodes."""

    def provide(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Have all kernels for these; BackendError for what does not compile."""

    def prepare_weights(self, weights: Sequence[tuple[Tensor, Sequence[str]]]) -> None:
        """Called once before `prepare_weight` with all that it will be called with: have all
        kernels for that."""


@runtime_checkable
class BuildsAhead(Protocol):
    """A device that can build the kernels of nodes before these have memory."""

    def build(self, nodes: Sequence[Work], options: CompileOptions) -> None:
        """Build what `compile` will need; BackendError for what does not compile."""


@runtime_checkable
class HasTarget(Protocol):
    """A device whose kernels are compiled for some kind of machine."""

    @property
    def target(self) -> str:
        """That kind, in words."""


@runtime_checkable
class NotesKernels(Protocol):
    """A device that finds the kernels of many graphs again without these graphs."""

    def note(self, key: str, nodes: Sequence[Work]) -> None:
        """Store under a key, for later processes, which kernels these need."""

    def has_noted(self, key: str) -> bool:
        """Return True if kernels were noted under a key and all of them are cached."""
