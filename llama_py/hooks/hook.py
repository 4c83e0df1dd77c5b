"""Base class of hooks on node values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from ggml_py.tensor import Tensor
from llama_py.batch import UBatch
from llama_py.hooks.names import FoundNode, checked

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class At:
    """Name, node and ubatch of a value.

    name    requested name
    node    the tensor: its op, type, shape and sources. A patch may read the sources' values,
            except those that the op itself changes
    ubatch  the tokens, positions and sequences that are being computed
    """

    name: str
    node: Tensor
    ubatch: UBatch


class Hook(ABC):
    """Wants the values of some nodes, for as long as its `with` lasts.

    patterns  their names, see llama_py.hooks.names
    changes   whether it may write to them
    """

    changes = False

    def __init__(self, patterns: Sequence[str], switch: Callable[[Hook, bool], None]) -> None:
        """switch   puts it among a context's hooks, or takes it away"""
        self.patterns = [checked(p) for p in patterns]
        self._switch = switch

    @abstractmethod
    def see(self, found: FoundNode, ubatch: UBatch) -> None:
        """Handle the value of a node."""

    def __enter__(self) -> Self:
        self._switch(self, True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._switch(self, False)
