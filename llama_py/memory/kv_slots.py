"""Assignment of KV cache cells to tokens, and operations on sequences (llama-kv-cache.cpp)."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ggml_py.errors import ContextError
from llama_py.batch import END, UBatch
from llama_py.hparams.layer_shape import Window
from llama_py.memory.cells import Indices, KVCells
from llama_py.memory.part import MemoryPart, span


@dataclass(slots=True)
class SlotInfo:
    """Cells of a ubatch: token i of part s is stored in cell idxs[s][i] of stream strm[s]."""

    strm: list[int] = field(default_factory=list)
    idxs: list[Indices] = field(default_factory=list)

    @property
    def s0(self) -> int:
        return min(self.strm)

    @property
    def n_stream(self) -> int:
        """Streams from the first to the last used."""
        return max(self.strm) - min(self.strm) + 1


Forgotten = list[list[tuple[int, int]]]


class AppliedUBatch(NamedTuple):
    """Record of the last applied ubatch, for `discard`: its cells, the heads before it, and by
    stream the end of the positions that each sequence lost."""

    ubatch: UBatch
    place: SlotInfo
    heads: list[int]
    forgotten: Forgotten


@dataclass(frozen=True, slots=True)
class CellLayout:
    """The cells of a KV cache.

    unified   all sequences share one stream of kv_size cells; else each has a separate stream
    n_pos     positions of a token
    window    sliding window, or None; cells that all later tokens cannot see are reused
    with_ids  cells know their tokens
    """

    kv_size: int
    n_seq_max: int
    unified: bool
    n_pos: int = 1
    window: Window | None = None
    with_ids: bool = False

    @property
    def n_stream(self) -> int:
        """Number of separate streams of cells."""
        return 1 if self.unified else self.n_seq_max


class KVSlots(MemoryPart):
    """The cells of a KV cache, without their keys and values.

    A ubatch may be discarded even if it was applied incompletely.
    """

    def __init__(self, layout: CellLayout) -> None:
        self.kv_size, self.n_seq_max = layout.kv_size, layout.n_seq_max
        self.n_stream, self.n_pos, self.window = layout.n_stream, layout.n_pos, layout.window
        self.cells = [
            KVCells(self.kv_size, self.n_seq_max, self.n_pos >= 3, layout.with_ids)
            for _ in range(self.n_stream)
        ]
        self.heads = [0] * self.n_stream
        self.streams = [*range(self.n_stream)]  # by sequence
        self.applied: AppliedUBatch | None = None

    def copy_stream(self, src: int, dst: int) -> None:
        """Copy the contents of one stream's cells over another's."""

    def swap_streams(self, a: int, b: int, n: int) -> None:
        """Swap the contents of the first n cells of two streams."""

    def wipe(self, stream: int, cells: Indices) -> None:
        """Clear freed cells (ascending), so that their old contents reach no other token."""

    def stream_index(self, seq_id: int) -> int:
        if not 0 <= seq_id < self.n_seq_max:
            raise ContextError(f"seq_id must be in [0, {self.n_seq_max}), got {seq_id}")
        return self.streams[seq_id] if self.n_stream > 1 else 0

    def seq_swap(self, a: int, b: int) -> None:
        """Swap the streams of two sequences; their cells move along."""
        i, j = self.stream_index(a), self.stream_index(b)
        cells, heads = self.cells, self.heads
        self.swap_streams(i, j, max(cells[i].used_max_p1(), cells[j].used_max_p1()))
        cells[i], cells[j] = cells[j], cells[i]
        heads[i], heads[j] = heads[j], heads[i]
        self.streams[a], self.streams[b] = j, i
        self.applied = None

    def prepare(self, ubatches: list[UBatch]) -> list[SlotInfo]:
        """Find cells for all ubatches by a trial on a copy.

        Raises ContextError if they do not all fit.
        """
        if len(ubatches) == 1:
            return [self._find_place(ubatches[0], ubatches)]
        trial, places = copy(self), []
        trial.cells, trial.heads = [c.copy() for c in self.cells], list(self.heads)
        for ubatch in ubatches:
            places.append(trial._find_place(ubatch, ubatches))
            trial.apply_ubatch(places[-1], ubatch)
        return places

    def _find_place(self, ubatch: UBatch, batch: list[UBatch]) -> SlotInfo:
        place = self.find_slot(ubatch)
        if place is None:
            n_tokens = sum(u.n_tokens for u in batch)
            used = max(cells.used for cells in self.cells)
            each = " per sequence" if self.n_stream > 1 else ""
            raise ContextError(
                f"a batch of {n_tokens} tokens does not fit the context: the KV cache has "
                f"{self.kv_size} cells{each}, {used} in use; use a larger n_ctx or a shorter "
                "prompt, or free cells with seq_rm or clear"
            )
        return place

    def find_slot(self, ubatch: UBatch) -> SlotInfo | None:
        """Free cells for every token, searched from the head on and then from the start; None if
        there are too few."""
        parts = len(ubatch.streams) or 1
        n_tokens = ubatch.n_tokens // parts
        if parts == 1:
            stream = self.stream_index(ubatch.seq_id_unq[0])
            found = self.find_cells(stream, n_tokens)
            return None if found is None else SlotInfo([stream], [found])
        place = SlotInfo()
        for stream in ubatch.streams:
            idxs = self.find_cells(stream, n_tokens)
            if idxs is None:
                return None
            place.strm.append(stream)
            place.idxs.append(idxs)
        return place

    def find_cells(self, stream: int, n: int) -> Indices | None:
        """Find n writable cells of a stream; None if there are too few."""
        cells, head = self.cells[stream], self.heads[stream]
        if head > cells.used + 2 * n:  # many free cells before the head: fill them first
            head = 0
        end = head + n
        if n == 1 and cells.is_usable(first := head % cells.size, self.window):
            return np.array((first,))
        if end <= cells.size and not (cells.pos[head:end] >= 0).any():
            return np.arange(head, end)
        usable = np.flatnonzero(cells.usable(self.window))
        split = int(np.searchsorted(usable, head))
        found: Indices = np.concatenate((usable[split:], usable[:split]))[:n]
        return found if found.size == n else None

    def apply_ubatch(self, place: SlotInfo, ubatch: UBatch) -> None:
        """Put the ubatch's positions and sequences into its cells."""
        pos = ubatch.pos[: ubatch.n_tokens]
        n = ubatch.n_tokens // len(place.strm)
        forgotten = self.overwritten(place)
        self.applied = AppliedUBatch(ubatch, place, list(self.heads), forgotten)
        for s, (stream, idx) in enumerate(zip(place.strm, place.idxs, strict=True)):
            cells = self.cells[stream]
            part = slice(s * n, (s + 1) * n)
            for seq_id, p1 in forgotten[s]:
                cells.seq_rm(seq_id, 0, p1)
            if self.n_stream == 1:
                cells.place(idx, pos, ubatch.by_seq())
            else:
                cells.place(idx, pos[part], [(ubatch.seq_id[s * n][0], slice(0, n))])
            if cells.xy is not None:
                cells.xy[0, idx] = ubatch.pos[2 * ubatch.n_tokens :][part]
                cells.xy[1, idx] = ubatch.pos[ubatch.n_tokens :][part]
            if cells.ids is not None:
                cells.ids[idx] = -1 if ubatch.token is None else ubatch.token[part]
            self.heads[stream] = int(idx[-1]) + 1

    def follow(self, ubatch: UBatch, place: SlotInfo, forgotten: Forgotten) -> None:
        """Apply a ubatch that continues its sequences.

        forgotten  `overwritten` of the place
        """
        self.applied = AppliedUBatch(ubatch, place, list(self.heads), forgotten)
        i = 0
        for stream, idx, gone in zip(place.strm, place.idxs, forgotten, strict=True):
            for seq_id, p1 in gone:
                self.cells[stream].seq_rm(seq_id, 0, p1)
            for cell in idx.tolist():
                self.cells[stream].append(cell, ubatch, i)
                i += 1
            self.heads[stream] = cell + 1

    def count_at_head(self, place: SlotInfo, end: int) -> int:
        """Return the number of empty cells from the head to cell `end` that single tokens take one
        after another, beginning with this place."""
        stream = place.strm[0]
        head = self.heads[stream]
        if place.idxs[0][0] != head:
            return 1
        is_used = self.cells[stream].pos[head:end] >= 0
        return int(is_used.argmax()) if is_used.any() else is_used.size

    def take_head(self, ubatch: UBatch, place: SlotInfo) -> None:
        """`follow` for a single token that takes the empty cell at the head, at this place."""
        stream = place.strm[0]
        self.applied = AppliedUBatch(ubatch, place, list(self.heads), [[]])
        place.idxs[0][0] = cell = self.heads[stream]
        self.cells[stream].append(cell, ubatch, 0)
        self.heads[stream] = cell + 1

    def overwritten(self, place: SlotInfo) -> Forgotten:
        """Return, per part, (sequence, end of its lost positions) for cells that are about to be
        reused. All earlier positions are lost as well, so that a sequence has no gaps."""
        if self.window is None:
            return [[]] * len(place.strm)
        return [
            self._overwritten(self.cells[stream], idx)
            for stream, idx in zip(place.strm, place.idxs, strict=True)
        ]

    def _overwritten(self, cells: KVCells, idx: Indices) -> list[tuple[int, int]]:
        if cells.pos.item(idx.item()) < 0 if idx.size == 1 else (cells.pos[idx] < 0).all():
            return []
        seqs = np.flatnonzero(cells.seq[:, idx].any(1))
        return [(int(s), int(cells.pos[idx[cells.seq[s, idx]]].max()) + 1) for s in seqs]

    @property
    def supports_rollback(self) -> bool:
        return self.window is None

    def reset(self) -> None:
        for cells in self.cells:
            cells.reset()
        self.heads, self.streams = [0] * self.n_stream, [*range(self.n_stream)]

    def discard(self, ubatch: UBatch) -> list[int]:
        """Undo `apply_ubatch` of this ubatch, if it was applied, and return the lost sequences."""
        a = self.applied
        if a is None or a.ubatch is not ubatch:
            return []
        for stream, idx, forgotten in zip(a.place.strm, a.place.idxs, a.forgotten, strict=True):
            self.cells[stream].take_back(idx, forgotten)
            self.wipe(stream, np.sort(idx))
        self.heads = list(a.heads)
        return []

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        p0, p1 = span(p0, p1)
        streams = range(self.n_stream) if seq_id < 0 else [self.stream_index(seq_id)]
        for stream in streams:
            cells = self.cells[stream]
            if seq_id < 0:
                freed = np.flatnonzero(cells.cells_in_range(p0, p1))
                cells.rm(freed)
            else:
                freed = cells.seq_rm(seq_id, p0, p1)
            self._lower_head(stream, freed)
            if (p0, p1) == (0, END):  # a rollback does not wipe: its cells are soon overwritten
                self.wipe(stream, freed)
        return True

    def _lower_head(self, stream: int, freed: Indices) -> None:
        if freed.size:
            self.heads[stream] = min(self.heads[stream], int(freed[0]))

    def check_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Raise ContextError if a part of a sequence must be copied to another stream."""
        if self.stream_index(src) == self.stream_index(dst):
            return
        if (p0 > 0 and p0 + 1 < self.kv_size) or (p1 > 0 and p1 + 1 < self.kv_size):
            raise ContextError(
                f"seq_cp of positions [{p0}, {p1}) needs kv_unified=True; without kv_unified "
                "copy a whole sequence"
            )

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        from_stream, to_stream = self.stream_index(src), self.stream_index(dst)
        if src == dst:
            return
        if from_stream == to_stream:
            self.cells[from_stream].seq_cp(src, dst, *span(p0, p1))
            return
        self.check_copy(src, dst, p0, p1)
        self.copy_stream(from_stream, to_stream)
        copied = self.cells[from_stream].copy()
        copied.seq[[src, dst]] = copied.seq[[dst, src]]
        copied.forget_ranges()
        self.cells[to_stream] = copied
        self.heads[to_stream] = self.heads[from_stream]

    def seq_keep(self, seq_id: int) -> None:
        mine = self.stream_index(seq_id)
        freed = self.cells[mine].seq_keep(seq_id)
        self._lower_head(mine, freed)
        self.wipe(mine, freed)
        for stream, cells in enumerate(self.cells):
            if stream != mine:
                self.wipe(stream, np.flatnonzero(cells.pos >= 0))
                cells.reset()
                self.heads[stream] = 0

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        stream = self.stream_index(seq_id)
        self.check_shift("seq_add")
        if delta:
            gone = self.cells[stream].pos_add(seq_id, *span(p0, p1), delta)
            self.heads[stream] = int(gone[0]) if gone.size else 0

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        stream = self.stream_index(seq_id)
        self.check_shift("seq_div")
        if d < 1:
            raise ContextError(f"seq_div: d must be at least 1, got {d}")
        if d != 1:
            self.cells[stream].pos_div(seq_id, *span(p0, p1), d)

    def check_shift(self, what: str, within: bool = False) -> None:
        """Raise ContextError if positions cannot be shifted."""
        if self.n_pos > 1:
            raise ContextError(
                f"{what}: {self.n_pos} positions per token cannot be moved; decode the tokens again"
            )

    def has_shift(self) -> bool:
        """Return True if positions changed since the keys were last rotated."""
        return any(cells.has_shift for cells in self.cells)

    def forget_shift(self) -> None:
        """Clear the shifts, after the keys have been rotated."""
        for cells in self.cells:
            cells.reset_shift()

    def sharing(self, seq_id: int, p0: int) -> list[int]:
        """Return the other sequences that see cells of this one from position p0 on."""
        cells = self.cells[self.stream_index(seq_id)]
        shared = (cells.seq & cells.seq[seq_id] & (cells.pos >= p0)).any(1)
        return [int(s) for s in np.flatnonzero(shared) if s != seq_id]

    def moved_seqs(self) -> list[int]:
        """Return the sequences with positions moved after the last rotation of their keys."""
        return sorted({s for cells in self.cells for s in cells.moved_seqs()})

    def seq_pos_min(self, seq_id: int) -> int:
        return self.cells[self.stream_index(seq_id)].pos_range(seq_id)[0]

    def seq_pos_max(self, seq_id: int) -> int:
        return self.cells[self.stream_index(seq_id)].pos_range(seq_id)[1]
