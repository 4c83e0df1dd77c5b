"""States in host memory within a byte limit; the least recently used are evicted first."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.machine.host import memory

MIB = 2**20
CACHE_RAM = 8192  # default in MiB
PART = 4  # divisor of free memory that gives the upper limit


class SavedState:
    """Saved state: the part that cannot be rolled back by token, or the whole state.

    marked  other prompts are likely to continue here
    evict   called when it is evicted, after its removal from the budget
    """

    def __init__(
        self, data: bytes, evict: Callable[[SavedState], None], marked: bool = False
    ) -> None:
        self.data = data
        self.evict = evict
        self.marked = marked


class CacheBudget:
    """Saved states, the least recently used first.

    limit      bytes; None for any number
    size       bytes in use
    n_evicted  number of evicted states
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.size = 0
        self.n_evicted = 0
        self._kept: dict[SavedState, None] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def allows(self, size: int) -> bool:
        """Return True if a state of `size` bytes fits the limit."""
        return self.limit is None or size <= self.limit

    def add(self, one: SavedState) -> bool:
        """Add a state, and evict the least recently used states; False if it is too large."""
        if not self.allows(len(one.data)):
            return False
        self._kept[one] = None
        self.size += len(one.data)
        while self.limit is not None and self.size > self.limit:
            oldest = next(iter(self._kept))
            self.drop(oldest)
            self.n_evicted += 1
            oldest.evict(oldest)
        return True

    def use(self, one: SavedState) -> None:
        """Mark a state as most recently used."""
        if one in self._kept:
            self._kept[one] = self._kept.pop(one)

    def drop(self, one: SavedState) -> None:
        """Drop a state that is no longer needed."""
        if one in self._kept:
            del self._kept[one]
            self.size -= len(one.data)


def byte_limit(cache_ram: int | None) -> int | None:
    """Return the byte limit for `ContextParams.cache_ram`; None for no limit."""
    if cache_ram is None:
        return min(CACHE_RAM * MIB, memory()[0] // PART)
    return None if cache_ram < 0 else cache_ram * MIB
