"""A batch with its place in every part of a memory (llama_memory_context_i)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ggml_py.errors import ContextError
from llama_py.batch import UBatch
from llama_py.memory.kv import KVCacheContext
from llama_py.memory.part import StateWalk
from llama_py.memory.ubatch_cursor import UBatchCursor

S = TypeVar("S", bound=StateWalk)


class GroupContext(UBatchCursor):
    """A batch's ubatches, each with its place in every part (llama_memory_context_i)."""

    def __init__(
        self,
        of: Mapping[int, str],
        caches: Mapping[str, KVCacheContext],
        recr: UBatchCursor | None,
        ubatches: list[UBatch],
    ) -> None:
        super().__init__(ubatches)
        self._of, self._caches, self._recr = of, caches, recr
        self._n_room = 0  # ubatches that are known to have room
        self._parts: list[UBatchCursor] = [*caches.values(), *([] if recr is None else [recr])]

    def as_if(self, n_used: int) -> None:
        """Set `n_used` cells of each cache as in use, in a context made by init_full for
        measuring."""
        for cache in self._caches.values():
            cache.as_if(n_used)

    def next(self) -> bool:
        for part in self._parts:
            part.next()
        return super().next()

    def apply(self) -> None:
        for part in self._parts:
            part.apply()

    @property
    def is_settled(self) -> bool:
        """True if equally many tokens of the same sequences may `follow` this batch. Without memory
        it is False: each batch is then a separate text."""
        return bool(self._parts) and all(part.is_settled for part in self._parts)

    def has_room(self, ubatch: UBatch) -> bool:
        """Return True if every part has cells for the tokens of `ubatch`."""
        n = self._n_room or min(part.count_room(ubatch) for part in self._parts)
        self._n_room = max(0, n - 1)
        return n > 0

    def follow(self, ubatch: UBatch) -> None:
        """Take their place: they are the ubatch from now on."""
        self.ubatches[self._i] = ubatch
        for part in self._parts:
            part.follow(ubatch)

    def cache_name(self, il: int) -> str:
        """Return the name of the cache that stores keys and values of layer il."""
        return self._of[il]

    def kv(self, part: str) -> KVCacheContext:
        """Return the cache named `part`."""
        return self._caches[part]

    def states(self, kind: type[S]) -> S:
        """Return the walk through the states, which must be of this kind."""
        if not isinstance(self._recr, kind):
            raise ContextError(
                f"memory: this model has no {kind.keeps}; use the inputs of its variant"
            )
        return self._recr
