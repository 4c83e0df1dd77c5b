"""Cells of a KV cache: the position and the sequences of each (llama-kv-cells.h)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from llama_py.batch import I32, Index, UBatch
from llama_py.hparams.layer_shape import Window

Indices = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class KVCells:
    """Cells of one stream, as arrays over the cells.

    pos     position, -1 if the cell is empty
    shift   sum of position changes after the last rotation of the keys
    seq     [n_seq_max, size] True if the sequence sees the cell
    n_seq   number of sequences that see it
    xy      [2, size] column and row of an image patch (M-RoPE only)
    ids     [size] token id, -1 for an embedding (only if the memory stores tokens)
    repeats  True if a sequence may have several cells with the same position
    """

    def __init__(
        self, size: int, n_seq_max: int, with_xy: bool = False, with_ids: bool = False
    ) -> None:
        self.size = size
        self.pos = np.full(size, -1, np.int32)
        self.shift = np.zeros(size, np.int32)
        self.seq = np.zeros((n_seq_max, size), np.bool_)
        self.n_seq = np.zeros(size, np.int16)
        self.xy = np.zeros((2, size), np.int32) if with_xy else None
        self.ids = np.full(size, -1, np.int32) if with_ids else None
        self.reset()

    def reset(self) -> None:
        """Reset every cell to empty."""
        self.pos[:] = -1
        self.shift[:] = 0
        self.seq[:] = False
        self.n_seq[:] = 0
        self.used, self.repeats = 0, self.xy is not None
        self.has_shift = False
        self._max_p1: int | None = 0
        self._range: dict[int, tuple[int, int]] = {}  # (pos_min, pos_max) of a sequence, if known

    def copy(self) -> KVCells:
        other = KVCells.__new__(KVCells)
        other.__dict__.update(self.__dict__)
        for name in ("pos", "shift", "seq", "n_seq"):
            setattr(other, name, getattr(self, name).copy())
        other.xy = None if self.xy is None else self.xy.copy()
        other.ids = None if self.ids is None else self.ids.copy()
        other._range = dict(self._range)
        return other

    def forget_ranges(self) -> None:
        """Clear cached position ranges of sequences, which may have changed."""
        self._range.clear()

    def used_max_p1(self) -> int:
        """Return one past the last used cell, or 0 if all are empty."""
        if self._max_p1 is None:
            used = np.flatnonzero(self.pos >= 0)
            self._max_p1 = int(used[-1]) + 1 if used.size else 0
        return self._max_p1

    def pos_range(self, seq_id: int) -> tuple[int, int]:
        """Return a sequence's smallest and largest position; (-1, -1) if it is empty."""
        found = self._range.get(seq_id)
        if found is None:
            pos = self.pos[self.seq[seq_id]]
            found = (int(pos.min()), int(pos.max())) if pos.size else (-1, -1)
            self._range[seq_id] = found
        return found

    def is_usable(self, cell: int, window: Window | None) -> bool:
        """Return True if a token may take the cell, like `usable`."""
        pos = self.pos.item(cell)
        if pos < 0 or window is None or self.n_seq.item(cell) != 1:
            return pos < 0
        last = self.pos_range(int(self.seq[:, cell].argmax()))[1]
        return pos < last and bool(window.hides(pos, last + 1))

    def usable(self, window: Window | None) -> Bools:
        """Return cells that a token may take: empty, or of one sequence that has moved its window
        past them. The last cell of a sequence is excluded: it marks the sequence's end."""
        free = self.pos < 0
        if window is not None:
            single = self.n_seq == 1
            for s in np.flatnonzero(self.seq.any(1)):
                last = self.pos_range(int(s))[1]
                past = window.hides(self.pos, last + 1) & (self.pos < last)
                free |= single & self.seq[s] & past
        return free

    def place(self, cells: Indices, pos: I32, by_seq: Iterable[tuple[int, Index]]) -> None:
        """Fill empty cells with positions; each sequence sees the cells of its tokens."""
        self.pos[cells] = pos
        self.used += cells.size
        if self._max_p1 is not None:
            self._max_p1 = max(self._max_p1, int(cells.max()) + 1)
        for s, where in by_seq:
            mine = cells[where]
            self.seq[s, mine] = True
            self.n_seq[mine] += 1
            if s in self._range:
                low, high = self._range[s]
                first, last = int(pos[where].min()), int(pos[where].max())
                self._range[s] = (first if low < 0 else min(low, first), max(high, last))

    def append(self, cell: int, ubatch: UBatch, i: int) -> None:
        """Fill an empty cell with token i, which continues its only sequence."""
        pos, seq_id = ubatch.pos.item(i), ubatch.seq_id[i][0]
        self.pos[cell] = pos
        self.used += 1
        if self._max_p1 is not None and self._max_p1 <= cell:
            self._max_p1 = cell + 1
        self.seq[seq_id, cell] = True
        self.n_seq[cell] = 1
        known = self._range.get(seq_id)
        if known is not None:
            self._range[seq_id] = (known[0] if known[0] >= 0 else pos, pos)
        if self.xy is not None:
            self.xy[:, cell] = ubatch.pos[[2 * ubatch.n_tokens + i, ubatch.n_tokens + i]]
        if self.ids is not None:
            self.ids[cell] = -1 if ubatch.token is None else ubatch.token[i]

    def find_position(self, pos: int, seq_id: int, likely: int, end: int) -> list[int]:
        """Return a sequence's cells before `end` that have a position. `likely` is compared first,
        which is faster."""
        is_next = 0 <= likely < end and self.pos.item(likely) == pos
        if is_next and not self.repeats and self.seq.item(seq_id, likely):
            return [likely]
        found = self.seq[seq_id, :end] & (self.pos[:end] == pos)
        return np.flatnonzero(found).tolist()

    def used_max(self, cells: Indices, forgotten: Sequence[tuple[int, int]]) -> int:
        """Return `used_max_p1` after `cells` are taken and each (sequence, p1) of `forgotten` lost
        its positions below p1; no cell has two sequences then."""
        last = max(self.used_max_p1() - 1, cells.item() if cells.size == 1 else int(cells.max()))
        if not any(self.seq.item(s, last) and self.pos.item(last) < p1 for s, p1 in forgotten):
            return last + 1
        kept = self.pos >= 0
        for s, p1 in forgotten:
            kept &= ~(self.seq[s] & (self.pos < p1))
        kept[cells] = True
        return int(np.flatnonzero(kept)[-1]) + 1

    def take_back(self, cells: Indices, forgotten: Iterable[tuple[int, int]]) -> None:
        """Empty these cells, and for each (sequence, p1) all positions below p1, even after an
        incomplete change: everything else is counted again."""
        self.pos[cells] = -1
        self.seq[:, cells] = False
        for s, p1 in forgotten:
            self.seq[s, self.pos < p1] = False
        self.n_seq[:] = self.seq.sum(0)
        self.pos[self.n_seq == 0] = -1
        self.shift[self.n_seq == 0] = 0
        self.used = int(np.count_nonzero(self.pos >= 0))
        self._max_p1 = None
        self._range.clear()

    def _clear_cells(self, cells: Indices) -> None:
        self.pos[cells] = -1
        self.shift[cells] = 0
        self.used -= cells.size
        self._max_p1 = None

    def rm(self, cells: Indices) -> None:
        """Empty these cells; those already empty may be among them."""
        cells = cells[self.pos[cells] >= 0]
        for s in np.flatnonzero(self.seq[:, cells].any(1)):
            self._range.pop(int(s), None)
        self.seq[:, cells] = False
        self.n_seq[cells] = 0
        self._clear_cells(cells)

    def cells_in_range(self, p0: int, p1: int) -> Bools:
        """Return used cells with a position in [p0, p1)."""
        return np.asarray((self.pos >= max(p0, 0)) & (self.pos < p1))

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> Indices:
        """Take the sequence out of its cells in [p0, p1); returns the cells that became empty."""
        if self.pos_range(seq_id)[1] < p0:
            return np.empty(0, np.int64)
        mine = np.flatnonzero(self.seq[seq_id] & self.cells_in_range(p0, p1))
        self.seq[seq_id, mine] = False
        self.n_seq[mine] -= 1
        self._range.pop(seq_id, None)
        freed: Indices = mine[self.n_seq[mine] == 0]
        self._clear_cells(freed)
        return freed

    def seq_cp(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Add dst to the cells of src in [p0, p1)."""
        new = np.flatnonzero(self.seq[src] & ~self.seq[dst] & self.cells_in_range(p0, p1))
        self.seq[dst, new] = True
        self.n_seq[new] += 1
        self._range.pop(dst, None)

    def seq_keep(self, seq_id: int) -> Indices:
        """Empty the cells of all other sequences; returns them."""
        kept = self.seq[seq_id].copy()
        freed = np.flatnonzero((self.pos >= 0) & ~kept)
        self.seq[:] = False
        self.seq[seq_id] = kept
        self.n_seq[:] = kept
        self._range = {s: r for s, r in self._range.items() if s == seq_id}
        self._clear_cells(freed)
        return freed

    def pos_add(self, seq_id: int, p0: int, p1: int, delta: int) -> Indices:
        """Add delta to the positions of a sequence in [p0, p1); returns cells that fell below 0."""
        mine = np.flatnonzero(self.seq[seq_id] & self.cells_in_range(p0, p1))
        self.pos[mine] += delta
        self.repeats = True
        self.shift[mine] += delta
        self._range.clear()
        self.has_shift = self.has_shift or mine.size > 0
        gone: Indices = mine[self.pos[mine] < 0]
        self.seq[:, gone] = False
        self.n_seq[gone] = 0
        self._clear_cells(gone)
        return gone

    def pos_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide the positions of a sequence in [p0, p1) by d."""
        mine = np.flatnonzero(self.seq[seq_id] & self.cells_in_range(p0, p1))
        old = self.pos[mine]
        self.pos[mine] = old // d
        self.repeats = True
        self.shift[mine] += self.pos[mine] - old
        self._range.clear()
        self.has_shift = self.has_shift or mine.size > 0

    def moved_seqs(self) -> list[int]:
        """Return sequences with positions that changed after the last rotation of their keys."""
        moved = self.seq[:, self.shift != 0].any(1)
        return [int(s) for s in np.flatnonzero(moved)]

    def reset_shift(self) -> None:
        """Clear all shifts, after the keys have been rotated."""
        self.has_shift = False
        self.shift[:] = 0
