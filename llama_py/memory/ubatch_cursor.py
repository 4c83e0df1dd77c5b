"""A batch's ubatches in a memory, one after another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING

from llama_py.batch import END, UBatch
from llama_py.memory.base import LayerKey

if TYPE_CHECKING:
    from typing_extensions import Self


class UBatchCursor(ABC):
    """The ubatches of a batch in a memory, one after the other."""

    def __init__(self, ubatches: list[UBatch]) -> None:
        self.ubatches = ubatches
        self.part: int | None = None
        self._i = 0

    def select_part(self, part: int) -> Self:
        """Return a copy for one device, if devices share layers."""
        found = copy(self)
        found.part = part
        return found

    def _key(self, il: int) -> LayerKey:
        return il if self.part is None else (il, self.part)

    def next(self) -> bool:
        """Go to the next ubatch; False, and no move, at the last."""
        there_is = self._i + 1 < len(self.ubatches)
        self._i += there_is
        return there_is

    def get_ubatch(self) -> UBatch:
        """Return the current ubatch."""
        return self.ubatches[self._i]

    @abstractmethod
    def apply(self) -> None:
        """Take the place of the current ubatch in the memory."""

    @property
    def is_settled(self) -> bool:
        """True if the next tokens of these sequences need only `follow`, while cells are free
        and memory is not changed otherwise.
        """
        return False

    def count_room(self, ubatch: UBatch) -> int:
        """Return the number of ubatches, this one and others that continue it, that have cells and
        the same graph; at least 1 if this one has."""
        return END

    @abstractmethod
    def follow(self, ubatch: UBatch) -> None:
        """Take their place, after `count_room`."""
