"""Caches of sequences that are computed together are next to each other."""

from __future__ import annotations

from collections.abc import Sequence

from llama_py.context import Context


class AdjacentCaches:
    """Moves of caches, so that one ubatch computes the sequences of a batch.

    Every further ubatch of a batch reads all weights again. The caches move when the bytes read by
    further ubatches reach the bytes of the move.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._read_again = 0  # bytes of weights, since the last move

    def adjoin(self, seq_ids: Sequence[int]) -> None:
        """Move caches of the sequences next to each other, if ubatches cost more than the move."""
        memory = self._ctx.memory
        if not (pairs := memory.swaps_to_adjoin(seq_ids)):
            return
        self._read_again += self._ctx.model.n_bytes
        if memory.swap_bytes(pairs) <= self._read_again:
            memory.adjoin(pairs)
            self._read_again = 0
