"""Caches of sequences that are computed together are next to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from llama_py.context import Context

GRAPH = 32 << 20  # bytes that move in the time of building a graph


class AdjacentCaches:
    """Moves of caches, so that one ubatch computes the sequences of a batch by a known graph.

    Every further ubatch of a batch reads all weights again. The caches move when the bytes read by
    further ubatches reach the bytes of the move. A graph is for certain streams: sequences also
    move to streams with an existing graph, until that has taken the time of a new graph.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._read_again = 0  # bytes of weights, since the last move
        self._known: set[tuple[int, int]] = set()  # first stream and number of streams of graphs
        self._moved = Counter[tuple[int, int]]()  # bytes, by the streams that lack a graph

    def adjoin(self, seq_ids: Sequence[int]) -> None:
        """Move caches of the sequences next to each other, if that pays."""
        memory, n = self._ctx.memory, len(seq_ids)
        first = memory.first_stream(seq_ids)
        if (first, n) in self._known or not (ways := memory.ways_to_adjoin(seq_ids)):
            return
        sizes = {start: memory.swap_bytes(pairs) for start, pairs in ways.items()}
        best = min(ways, key=lambda start: sizes[start] + self._graph_bytes(start, n))
        if first < 0:
            self._read_again += self._ctx.model.n_bytes
        if sizes[best] > (self._read_again if first < 0 else inf):
            return
        memory.adjoin(ways[best])
        self.note(best, n)
        if first < 0:
            self._read_again = 0
        elif best != first:
            self._moved[first, n] += sizes[best]

    def note(self, start: int, n: int) -> None:
        """Note that streams start .. start + n - 1 have a graph."""
        self._known.add((start, n))

    def _graph_bytes(self, start: int, n: int) -> int:
        """Return how many bytes may still move instead of building another graph."""
        if (start, n) in self._known:
            return 0
        return max(GRAPH - self._moved[start, n], 0)
