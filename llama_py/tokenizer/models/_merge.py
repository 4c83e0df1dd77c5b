"""Merging neighbours, the best pair first."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from llama_py.support.stopping import EVERY, check_stopped, checked

# Of text[a:b] and text[b:c]: the lower the sooner they merge; None if they do not.
Rank = Callable[[str, int, int, int], float | None]


def merged(text: str, rank: Rank) -> list[str]:
    """The text cut into symbols: at first its characters; of equal ranks the leftmost goes first.

    Time goes with the length, times its logarithm.
    """
    # A symbol is known by its start; `end[i]` 0: merged away.
    n = len(text)
    end = list(range(1, n + 1))
    before = list(range(-1, n - 1))
    queue = [
        (found, i, i + 1, i + 2)
        for i in checked(range(n - 1))
        if (found := rank(text, i, i + 1, i + 2)) is not None
    ]
    heapify(queue)
    left = 0
    while queue:
        if not left % EVERY:
            check_stopped()
        _, left, right, stop = heappop(queue)
        # Stale: one of the two has been merged since.
        if end[left] != right or end[right] != stop:
            continue
        end[left], end[right] = stop, 0
        if left and (found := rank(text, before[left], left, stop)) is not None:
            heappush(queue, (found, before[left], left, stop))
        if stop < n:
            before[stop] = left
            if (found := rank(text, left, stop, end[stop])) is not None:
                heappush(queue, (found, left, stop, end[stop]))
    symbols, i = [], 0
    while i < n:
        symbols.append(text[i : end[i]])
        i = end[i]
    return symbols
