"""States in host memory within a byte limit; the least recently used are evicted first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from itertools import count

from ggml_py.machine.host import memory

MIB = 2**20
CACHE_RAM_LEAST, CACHE_RAM = 64, 8192  # least and most MiB of the default
PART = 4  # divisor of free memory that gives the upper limit


class SavedState:
    """Saved state: the part that cannot be rolled back by token, or the whole state.

    marked  other prompts are likely to continue here
    used    number of its last use, increasing over all caches with a common limit
    evict   called when it is evicted, after its removal from the budget
    """

    def __init__(
        self, data: bytes, evict: Callable[[SavedState], None], marked: bool = False
    ) -> None:
        self.data = data
        self.evict = evict
        self.marked, self.used = marked, 0


class CommonLimit:
    """Byte limit for the states of several caches, each used by a thread.

    The least recently used state of all is evicted first, by the thread of its cache. Until then,
    the caches may exceed the limit by one state each.
    """

    def __init__(self, cache_ram: int | None = None) -> None:
        """Create a limit; cache_ram: see `byte_limit`, which the first cache calls."""
        self._cache_ram = cache_ram
        self._budgets: tuple[CacheBudget, ...] = ()
        self._changing = threading.Lock()
        self.clock = count(1)

    @cached_property
    def limit(self) -> int | None:
        """Bytes; None for any number."""
        return byte_limit(self._cache_ram)

    @property
    def is_exceeded(self) -> bool:
        """True if the caches together have too many bytes."""
        return self.limit is not None and sum(b.size for b in self._budgets) > self.limit

    def add(self, budget: CacheBudget) -> None:
        """Include the states of a cache."""
        with self._changing:
            self._budgets = (*self._budgets, budget)

    def remove(self, budget: CacheBudget) -> None:
        """Exclude the states of a cache."""
        with self._changing:
            self._budgets = tuple(b for b in self._budgets if b is not budget)

    def find_oldest(self) -> CacheBudget | None:
        """Return the cache with the least recently used state; None without states."""
        found = {oldest: b for b in self._budgets if (oldest := b.oldest)}
        return found[min(found)] if found else None


class CacheBudget:
    """Saved states, the least recently used first.

    limit      bytes; None for any number
    size       bytes in use
    oldest     `SavedState.used` of the least recently used state; 0 without states
    n_evicted  number of evicted states
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.size = self.oldest = 0
        self.n_evicted = 0
        self._kept: dict[SavedState, None] = {}
        self._clock, self._common = count(1), CommonLimit(-1)
        self._call: Callable[[Callable[[], None]], None] | None = None
        self._is_called = False  # `_trim` will be called

    def share(self, common: CommonLimit, call: Callable[[Callable[[], None]], None]) -> None:
        """Also apply a limit of several caches, before the first state.

        Args:
            common: The limit.
            call: Call a function in the thread of this cache, while it is not in use.
        """
        self._common, self._clock, self._call = common, common.clock, call
        common.add(self)

    def close(self) -> None:
        """Release the bytes of this cache for other caches."""
        self._common.remove(self)

    def __len__(self) -> int:
        return len(self._kept)

    def allows(self, size: int) -> bool:
        """Return True if a state of `size` bytes fits the limit."""
        limits = (self.limit, self._common.limit)
        return all(limit is None or size <= limit for limit in limits)

    def add(self, one: SavedState) -> bool:
        """Add a state, and evict the least recently used states; False if it is too large."""
        if not self.allows(len(one.data)):
            return False
        self._kept[one] = None
        self.size += len(one.data)
        one.used = next(self._clock)
        self._note_oldest()
        while self.limit is not None and self.size > self.limit:
            self._evict()
        while self._common.is_exceeded and not self._call_oldest() and len(self._kept) > 1:
            self._evict()
        return True

    def _evict(self) -> None:
        oldest = next(iter(self._kept))
        self.drop(oldest)
        self.n_evicted += 1
        oldest.evict(oldest)

    def _note_oldest(self) -> None:
        self.oldest = next((one.used for one in self._kept), 0)

    def _call_oldest(self) -> bool:
        """If another cache has the least recently used state, make its thread evict states; return
        False if this cache must evict."""
        other = self._common.find_oldest()
        if other is None or other is self or other._is_called or other._call is None:
            return False
        other._is_called = True
        other._call(other._trim)
        return True

    def _trim(self) -> None:
        """Evict states that are the least recently used of all caches."""
        self._is_called = False
        while self._common.is_exceeded and not self._call_oldest() and self._kept:
            self._evict()

    def use(self, one: SavedState) -> None:
        """Mark a state as most recently used."""
        if one in self._kept:
            self._kept[one] = self._kept.pop(one)
            one.used = next(self._clock)
            self._note_oldest()

    def drop(self, one: SavedState) -> None:
        """Drop a state that is no longer needed."""
        if one in self._kept:
            del self._kept[one]
            self.size -= len(one.data)
            self._note_oldest()


def byte_limit(cache_ram: int | None, usual: int | None = None) -> int | None:
    """Return the byte limit for `ContextParams.cache_ram`; None for no limit.

    Args:
        usual: Default for a context, `MemoryGroup.cache_bytes`; None: the limit of many models.
    """
    if cache_ram is None:
        most = min(CACHE_RAM * MIB, memory()[0] // PART)
        return most if usual is None else min(max(usual, CACHE_RAM_LEAST * MIB), most)
    return None if cache_ram < 0 else cache_ram * MIB
