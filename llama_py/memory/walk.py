"""Going through a batch's ubatches, which all kinds of memory do alike."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from llama_py.batch import UBatch
from llama_py.memory.base import LayerKey

if TYPE_CHECKING:
    from typing_extensions import Self


class Walk:
    """The ubatches of a batch in a memory, one after the other."""

    def __init__(self, ubatches: list[UBatch]) -> None:
        self.ubatches = ubatches
        self.part: int | None = None
        self._i = 0

    def on(self, part: int) -> Self:
        """The same for one of the devices that share layers: what it has of them."""
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
        return self.ubatches[self._i]

    def can_follow(self) -> bool:
        """Whether the token after the one token of this batch needs nothing but `follow`: its place
        is behind that one's, and the graph is the same."""
        return False

    def follow(self, ubatch: UBatch) -> None:
        """Take the place of that token."""
