"""Cells of a sequence in the order of its tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llama_py.memory.cells import KVCells

Ints = npt.NDArray[np.int64]


class Line:
    """Cells of a sequence in the order of their tokens: by position, or by rank if an image has
    several cells of one position."""

    def __init__(self, cells: KVCells, seq_id: int, n_kv: int) -> None:
        self.cells = np.flatnonzero(cells.seq[seq_id, :n_kv])
        self.places = cells.pos[self.cells].astype(np.int64)
        self.keys: Ints | None = None
        if _is_rising(self.places):
            return
        order = np.argsort(self.places, kind="stable")
        self.cells, self.places, xy = self.cells[order], self.places[order], cells.xy
        if xy is None or _is_rising(self.places):
            return
        keys = np.stack((self.places, xy[1, self.cells], xy[0, self.cells]))
        order = np.lexsort(keys[::-1])
        self.cells, self.keys = self.cells[order], keys[:, order]
        self.places = np.arange(order.size)

    def find_places(self, pos: npt.NDArray[np.int32]) -> Ints:
        """Return the index of tokens at positions [4, n] or [1, n] in the sequence. -> [n]"""
        if self.keys is None:
            return np.asarray(pos[0], np.int64)
        wanted = pos[[0, 1, 2] if len(pos) > 1 else [0, 0, 0]]
        before = [
            np.count_nonzero(_is_at_most(self.keys, wanted[:, i])) - 1 for i in range(pos.shape[1])
        ]
        return np.array(before, np.int64)

    def ranks(self, pos: npt.NDArray[np.int32]) -> Ints:
        """Return the number of earlier tokens of the sequence, for tokens at positions [4, n] or
        [1, n]. -> [n]"""
        found = self.find_places(pos)
        return found if self.keys is not None else np.searchsorted(self.places, found)

    def positions(self, i: Ints) -> Ints:
        """Return the positions of the sequence's cells number i. -> [4, n]"""
        if self.keys is None:
            return np.stack([self.places[i]] * 4)
        return np.asarray(self.keys[[0, 1, 2, 0]][:, i])

    def blocks(self, size: int) -> Ints:
        """Return the start index in the sequence of each complete block."""
        starts = np.flatnonzero(self.places % size == 0)
        ends = starts + size - 1
        starts, ends = starts[ends < self.places.size], ends[ends < self.places.size]
        return np.asarray(starts[self.places[ends] - self.places[starts] == size - 1])

    def runs(self, starts: Ints, size: int) -> Ints:
        """Return the cells of blocks that begin at `starts`. -> [blocks, size]"""
        n = starts.size
        if n and starts[-1] - starts[0] == (n - 1) * size:  # without a gap
            return self.cells[starts[0] : starts[-1] + size].reshape(n, size)
        return np.asarray(self.cells[starts[:, None] + np.arange(size)])


def _is_rising(places: Ints) -> bool:
    return bool((places[1:] > places[:-1]).all())


def _is_at_most(keys: Ints, key: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Return True for keys [3, n] up to and including `key`."""
    found = keys[2] <= key[2]
    for i in (1, 0):
        found = (keys[i] < key[i]) | ((keys[i] == key[i]) & found)
    return np.asarray(found)
