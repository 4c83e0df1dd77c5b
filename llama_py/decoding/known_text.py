"""Tokens of a sequence, which grow, lose their end or, in a context shift, their middle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llama_py.batch import I32


class KnownText:
    """Tokens of the positions from `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.n = 0
        self._ids = np.empty(256, np.int32)

    @property
    def end(self) -> int:
        """The position after the last."""
        return self.first + self.n

    @property
    def ids(self) -> I32:
        """All tokens; a view, which is valid until tokens are removed."""
        return self._ids[: self.n]

    def tokens_since(self, pos: int) -> list[int]:
        """Return the tokens from a position on."""
        return [int(id) for id in self.ids[max(pos - self.first, 0) :]]

    def add(self, ids: Sequence[int]) -> None:
        end = self.n + len(ids)
        if end > self._ids.size:
            self._ids = np.resize(self._ids, max(end, 2 * self._ids.size))
        self._ids[self.n : end] = ids
        self.n = end

    def cut(self, pos: int) -> None:
        """Remove positions from `pos` on."""
        self.n = min(self.n, max(pos - self.first, 0))

    def remove(self, pos: int, n: int) -> None:
        """Remove n positions from `pos` on; later positions move down."""
        start, end = (max(p - self.first, 0) for p in (pos, pos + n))
        ids = [*self.ids[:start].tolist(), *self.ids[end:].tolist()]
        if self.first > pos:
            self.first = max(self.first - n, pos)
        self.n = 0
        self.add(ids)
