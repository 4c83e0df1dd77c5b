"""Base class of hooks on node values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from ggml_py.tensor import Tensor
from llama_py.batch import UBatch
from llama_py.hooks.names import FoundNode, check_name

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class HookContext:
    """Name, node and ubatch of a value.

    name    requested name
    node    the tensor: its op, type, shape and sources. A patch may read the sources' values,
            except values that the op itself changes
    ubatch  tokens, positions and sequences in computation
    """

    name: str
    node: Tensor
    ubatch: UBatch


class Hook(ABC):
    """Request for the values of some nodes within a `with` block.

    patterns  names of nodes, see llama_py.hooks.names
    changes   True if it may change the values
    """

    changes = False

    def __init__(self, patterns: Sequence[str], switch: Callable[[Hook, bool], None]) -> None:
        """switch   adds the hook to a context's hooks, or removes it"""
        self.patterns = [check_name(p) for p in patterns]
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
