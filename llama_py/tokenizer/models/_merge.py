"""Merging of adjacent symbols, the best pair first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

import numpy as np

from llama_py.support.stopping import iterate_checked

# Rank of text[a:b] and text[b:c], lower ranks merge first; None if they do not merge.
Rank = Callable[[str, int, int, int], float | None]


class MergeQueue:
    """Pairs of symbols by rank, equal ranks by their numbers.

    Each rank has a separate heap, which needs no sorting at first: pairs are added from the left.
    """

    def __init__(self) -> None:
        self._ranks: list[float] = []
        self._pairs: dict[float, list[int]] = {}

    def push(self, rank: float, pair: int) -> None:
        pairs = self._pairs.get(rank)
        if pairs is None:
            pairs = self._pairs[rank] = []
            heappush(self._ranks, rank)
        heappush(pairs, pair)

    def __iter__(self) -> Iterator[int]:
        """Yield and remove the best pair until the queue is empty; more pairs may be pushed."""
        while self._ranks:
            pairs = self._pairs[self._ranks[0]]
            pair = heappop(pairs)
            if not pairs:
                del self._pairs[heappop(self._ranks)]
            yield pair


def merge_symbols(text: str, rank: Rank) -> list[str]:
    """Merge a text's characters to symbols; of equal ranks the leftmost pair merges first.

    The time is n log n in the length.
    """
    # The start of a symbol identifies it; `end[i]` 0: merged.
    n = len(text)
    end = array("q", np.arange(1, n + 1, dtype=np.int64).tobytes())
    before = array("q", np.arange(-1, n - 1, dtype=np.int64).tobytes())
    queue, bits = MergeQueue(), n.bit_length()
    low, middle = (1 << bits) - 1, (1 << 2 * bits) - 1

    def ask(left: int, right: int, stop: int) -> None:
        if (found := rank(text, left, right, stop)) is not None:
            # One number needs a quarter of the memory of a tuple: a text may have millions.
            queue.push(found, (left << bits | right) << bits | stop)

    for i in iterate_checked(range(n - 1)):
        ask(i, i + 1, i + 2)
    for pair in iterate_checked(queue):
        left, right, stop = pair >> 2 * bits, (pair & middle) >> bits, pair & low
        # Stale: one symbol of the pair was merged before.
        if end[left] != right or end[right] != stop:
            continue
        end[left], end[right] = stop, 0
        if left:
            ask(before[left], left, stop)
        if stop < n:
            before[stop] = left
            ask(left, stop, end[stop])
    symbols, i = [], 0
    while i < n:
        symbols.append(text[i : end[i]])
        i = end[i]
    return symbols
