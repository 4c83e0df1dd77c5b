"""A batch with its place in every part of a memory (llama_memory_context_i)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ggml_py.errors import ContextError
from llama_py.batch import UBatch
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.recurrent import RecurrentContext
from llama_py.memory.slots import SlotContext

if TYPE_CHECKING:
    from llama_py.memory.compressed import CompressedContext

StatesContext: TypeAlias = "RecurrentContext | SlotContext | CompressedContext"


class GroupContext:
    """A batch's ubatches, each with its place in every part (llama_memory_context_i)."""

    def __init__(
        self,
        of: Mapping[int, str],
        caches: Mapping[str, KVCacheContext],
        recr: StatesContext | None,
        ubatches: list[UBatch],
    ) -> None:
        self.ubatches = ubatches
        self._of, self._caches, self._recr = of, caches, recr
        self._parts = [*caches.values(), *([] if recr is None else [recr])]
        self._i = 0

    def as_if(self, n_used: int) -> None:
        """As if so many cells of each cache were in use, in a context that init_full made."""
        for cache in self._caches.values():
            cache.as_if(n_used)

    def next(self) -> bool:
        """Go to the next ubatch; False, and no move, at the last."""
        for part in self._parts:
            part.next()
        there_is = self._i + 1 < len(self.ubatches)
        self._i += there_is
        return there_is

    def apply(self) -> None:
        """Take the place of the current ubatch in the memory."""
        for part in self._parts:
            part.apply()

    @property
    def is_settled(self) -> bool:
        """Whether as many tokens after those of this batch, of the same sequences, may `follow`.
        None comes after them where nothing is kept: each batch is a text of its own."""
        return bool(self._parts) and all(part.is_settled for part in self._parts)

    def has_room(self, ubatch: UBatch) -> bool:
        """Whether every part has a place for these."""
        return all([part.has_room(ubatch) for part in self._parts])

    def follow(self, ubatch: UBatch) -> None:
        """Take their place: they are the ubatch from now on."""
        self.ubatches[self._i] = ubatch
        for part in self._parts:
            part.follow(ubatch)

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

    def compressed(self) -> CompressedContext:
        """Keys of several tokens each, where there are some."""
        if self._recr is None or isinstance(self._recr, RecurrentContext | SlotContext):
            raise ContextError("this memory keeps no compressed keys")
        return self._recr

    def slots(self) -> SlotContext:
        """The recurrent states, if they are rows of slots."""
        if not isinstance(self._recr, SlotContext):
            raise ContextError("this memory keeps no recurrent states in slots")
        return self._recr
