"""A batch with its place in every part of a memory (llama_memory_context_i)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggml_py.errors import ContextError
from llama_py.batch import UBatch
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.recurrent import RecurrentContext
from llama_py.memory.slots import SlotContext


class GroupContext:
    """A batch's ubatches, each with its place in every part (llama_memory_context_i)."""

    def __init__(
        self, of: Mapping[int, str], caches: Mapping[str, KVCacheContext],
        recr: RecurrentContext | SlotContext | None, ubatches: list[UBatch],
    ) -> None:  # fmt: skip
        self.ubatches = ubatches
        self._of, self._caches, self._recr = of, caches, recr
        self._i = 0

    def next(self) -> bool:
        """Go to the next ubatch; False, and no move, at the last."""
        for part in self._parts():
            part.next()
        there_is = self._i + 1 < len(self.ubatches)
        self._i += there_is
        return there_is

    def apply(self) -> None:
        """Take the place of the current ubatch in the memory."""
        for part in self._parts():
            part.apply()

    def can_follow(self) -> bool:
        """Whether every part has room for the token after the one token of this batch. None comes
        after it where nothing is kept: each batch is a text of its own."""
        parts = [*self._parts()]
        return bool(parts) and all(part.can_follow() for part in parts)

    def follow(self, ubatch: UBatch) -> None:
        """Take the place of that token, which is the ubatch from now on."""
        self.ubatches[self._i] = ubatch
        for part in self._parts():
            part.follow(ubatch)

    def _parts(self) -> Iterator[KVCacheContext | RecurrentContext | SlotContext]:
        yield from self._caches.values()
        if self._recr is not None:
            yield self._recr

    def get_ubatch(self) -> UBatch:
        """The current ubatch."""
        return self.ubatches[self._i]

    def part_of(self, il: int) -> str:
        """The name of the cache that has the keys and values of layer il."""
        return self._of[il]

    def kv(self, part: str) -> KVCacheContext:
        """A cache by its name."""
        return self._caches[part]

    def states(self) -> RecurrentContext:
        """The recurrent states, if they are in cells."""
        if not isinstance(self._recr, RecurrentContext):
            raise ContextError("this memory keeps no recurrent states in cells")
        return self._recr

    def slots(self) -> SlotContext:
        """The recurrent states, if they are rows of slots."""
        if not isinstance(self._recr, SlotContext):
            raise ContextError("this memory keeps no recurrent states in slots")
        return self._recr
