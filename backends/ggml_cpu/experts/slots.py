"""Slots of equal size for experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ggml_cpu.experts.layer import address
from ggml_cpu.experts.policies import Numbers, Scores
from ggml_py.backend import Bytes, aligned_bytes
from ggml_py.backend.host_memory import give_back

FREE, CLOSED = -1, -2
Score = Callable[[Numbers], Scores]


class Slots:
    """`n` slots of `size` bytes.

    owner   number of the expert in each slot, i64 [n]; FREE or CLOSED without one
    users   number of runs that need the expert now, i64 [n];  loading  it is being loaded
    """

    def __init__(self, n: int, size: int) -> None:
        self.n, self.size = n, size
        self.memory = aligned_bytes(n * size)
        self.owner, self.users = np.full(n, FREE), np.zeros(n, np.int64)
        self.loading = np.zeros(n, bool)

    def address(self, slot: int) -> int:
        return address(self.memory) + slot * self.size

    def view(self, slot: int) -> Bytes:
        """Return the bytes of a slot."""
        return self.memory[slot * self.size : (slot + 1) * self.size]

    @property
    def n_open(self) -> int:
        return int(np.count_nonzero(self.owner != CLOSED))

    def close(self, which: Numbers) -> None:
        """Release the memory of slots; they get no other expert."""
        self.owner[which] = CLOSED
        for slot in which.tolist():
            give_back(self.view(slot))

    def find(self, n: int, score: Score, least: float = np.inf) -> Numbers:
        """Return up to n slots for other experts: free slots, then slots with the lowest scores
        below `least`. Slots in use are excluded."""
        idle = np.flatnonzero((self.users == 0) & ~self.loading)
        free: Numbers = idle[self.owner[idle] == FREE][:n]
        rest = n - free.size
        owned = idle[self.owner[idle] >= 0] if rest else idle[:0]
        if not owned.size:
            return free
        scores = score(self.owner[owned])
        owned, scores = owned[scores < least], scores[scores < least]
        if owned.size > rest:
            owned = owned[np.argpartition(scores, rest - 1)[:rest]] if rest else owned[:0]
        return np.concatenate((free, owned))
