"""Cache of keys that are chosen in pools of neighboring tokens (llama-memory-hybrid-idx.cpp:
kpool_layout, kpool_state).

A pool is `size` consecutive positions of a sequence, counted from its first one, or `size`
consecutive tokens. Its key is computed from its tokens' keys when it is complete, and stored in the
row of its last token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from llama_py.batch import I32, UBatch
from llama_py.memory.cells import Bools, Indices, KVCells
from llama_py.memory.io import StateReader
from llama_py.memory.kv import KVCache, KVCacheContext
from llama_py.memory.kv_slots import SlotInfo
from llama_py.memory.line import Line
from llama_py.memory.part import span

N_POOL_STEP = 64  # pools grow in steps, so that graphs can be reused
NO_CELLS = np.empty(0, np.int64)


def pool_pad(n: int) -> int:
    """Return the padded number of pools in a graph; the last pool is never used."""
    return max(N_POOL_STEP, -(-(n + 1) // N_POOL_STEP) * N_POOL_STEP)


@dataclass(frozen=True)
class SeqPools:
    """Pools of one sequence. Methods get positions of its tokens, [axes, n].

    stream      stream that holds its cells
    pos, cells  its positions in order, and their cells
    starts      indices of the first position of each complete pool
    """

    stream: int
    pos: I32
    cells: Indices
    starts: Indices

    def members(self, size: int) -> Indices:
        """Return the cells of each pool, [pools, size]."""
        found: Indices = self.cells[self.starts[:, None] + np.arange(size)]
        return found

    def ends(self, size: int) -> I32:
        """Return the last position of each pool."""
        found: I32 = self.pos[self.starts + size - 1]
        return found

    def find_pools(self, pos: I32, size: int) -> Indices:
        """Return the pools that tokens belong to, without tokens after the last pool."""
        ends = self.ends(size)
        at = np.searchsorted(ends, pos[0])
        inside = at < ends.size
        at, first = at[inside], pos[0][inside]
        found: Indices = at[first > ends[at] - size]
        return found

    def count_seen(self, pos: I32, size: int) -> Indices:
        """Return the number of pools that each token sees."""
        found: Indices = np.searchsorted(self.ends(size), pos[0], "right")
        return found

    def find_tails(self, pos: I32, size: int) -> tuple[Indices, Bools]:
        """Return the cells of the tokens since the last pool that each token sees, newest first,
        and a mask of existing tokens. [n, size - 1]"""
        back = np.arange(size - 1)
        n_tail = (pos[0] - self.pos[0] + 1) % size
        cells, there = self.find_cells(pos[0][:, None] - back)
        return cells, there & (back < n_tail[:, None])

    def first_positions(self) -> I32:
        """Return the positions of each pool's first token, [4, pools]."""
        return np.tile(self.pos[self.starts], (4, 1))

    def find_cells(self, pos: I32) -> tuple[Indices, Bools]:
        """Return the cell of each position, and a mask of positions that have one."""
        if not self.cells.size:
            return np.zeros(pos.shape, np.int64), np.zeros(pos.shape, np.bool_)
        at = np.minimum(np.searchsorted(self.pos, pos), self.pos.size - 1)
        return self.cells[at], self.pos[at] == pos


@dataclass(frozen=True)
class OrderedPools(SeqPools):
    """Pools of consecutive tokens of a sequence, in the order of `line`."""

    line: Line

    def find_pools(self, pos: I32, size: int) -> Indices:
        found = self.line.ranks(pos) // size
        return found[found < self.starts.size]

    def count_seen(self, pos: I32, size: int) -> Indices:
        found: Indices = (self.line.ranks(pos) + 1) // size
        return found

    def find_tails(self, pos: I32, size: int) -> tuple[Indices, Bools]:
        back, ranks = np.arange(size - 1), self.line.ranks(pos)
        there = back < ((ranks + 1) % size)[:, None]
        return self.cells[np.maximum(ranks[:, None] - back, 0)], there

    def first_positions(self) -> I32:
        return self.line.positions(self.starts).astype(np.int32)


@dataclass(frozen=True)
class PoolPlan:
    """Pools of all sequences in a ubatch's graph, one sequence after another.

    seqs    by sequence, the pools of sequences with cells
    is_new  for each pool, whether its key must be computed
    safe    pooled keys can be cached; False if sequences share cells with different pools
    """

    size: int
    seqs: Mapping[int, SeqPools]
    is_new: Bools
    safe: bool

    @property
    def n_pool(self) -> int:
        """Pools in the graph."""
        return pool_pad(self.is_new.size)

    @cached_property
    def n_new(self) -> int:
        """Number of new keys; at least one, which keeps the graph the same."""
        return max(int(np.count_nonzero(self.is_new)), 1)

    @cached_property
    def first_pools(self) -> dict[int, int]:
        """The number of each sequence's first pool."""
        found, n = {}, 0
        for s, seq in self.seqs.items():
            found[s] = n
            n += seq.starts.size
        return found


@dataclass(frozen=True, slots=True)
class SavedValues:
    """Values to restore if a ubatch's graph is not computed."""

    ubatch: UBatch
    stale: Mapping[int, int]
    safe: bool


class KPoolCache(KVCache):
    """KV cache with pooled keys.

    by_order  pools are consecutive tokens, instead of positions
    stale  by sequence, the first position from which pools may differ from the pools of the
           cached keys
    safe   the last ubatch's keys are cached
    """

    any_order = False  # pooled keys of streams do not move

    def __init__(self, pool: int, *args: Any, by_order: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pool, self.by_order = pool, by_order
        self.stale: dict[int, int] = {}
        self.safe = True
        self.taken: SavedValues | None = None

    def place(self, ubatches: list[UBatch]) -> KPoolContext:
        return KPoolContext(self, self.prepare(ubatches), ubatches)

    def init_full(self, n_seqs: int | None = None) -> KPoolContext:
        full = super().init_full(n_seqs)
        return KPoolContext(self, full.places, [])

    def get_pools(self, seq_id: int) -> SeqPools:
        stream = self.stream_index(seq_id)
        if self.by_order:
            return self._ordered_pools(stream, seq_id)
        pos, cells = _by_position(self.cells[stream], seq_id)
        starts = NO_CELLS
        if pos.size >= self.pool:
            first = np.arange(pos.size - self.pool + 1)
            next_ones = np.concatenate(([0], np.cumsum(np.diff(pos) == 1)))
            whole = next_ones[first + self.pool - 1] - next_ones[first] == self.pool - 1
            starts = first[whole & ((pos[first] - pos[0]) % self.pool == 0)]
        return SeqPools(stream, pos, cells, starts)

    def _ordered_pools(self, stream: int, seq_id: int) -> OrderedPools:
        line = Line(self.cells[stream], seq_id, self.kv_size)
        n = line.cells.size
        pos = (line.places if line.keys is None else line.keys[0]).astype(np.int32)
        starts = np.arange(0, n - n % self.pool, self.pool)
        return OrderedPools(stream, pos, line.cells, starts, line)

    def plan(self, ubatch: UBatch) -> PoolPlan:
        """Plan the pools of a ubatch that has its cells; its graph recomputes stale pools."""
        seqs = {s: self.get_pools(s) for s in range(self.n_seq_max) if self.seq_pos_max(s) >= 0}
        safe = self.n_stream > 1 or not (self.cells[0].n_seq > 1).any()
        self.taken = SavedValues(ubatch, self.stale, self.safe)
        stale = self.stale if self.safe else dict.fromkeys(seqs, 0)
        new = [self._new(seq, s, ubatch, stale if safe else {s: 0}) for s, seq in seqs.items()]
        self.stale, self.safe = {}, safe
        return PoolPlan(self.pool, seqs, np.concatenate([*new, np.empty(0, np.bool_)]), safe)

    def _new(self, seq: SeqPools, seq_id: int, ubatch: UBatch, stale: Mapping[int, int]) -> Bools:
        """Return a sequence's pools that end after the stale position or have new tokens."""
        ends = seq.ends(self.pool)
        new: Bools = np.zeros(ends.size, np.bool_)
        if seq_id in stale:
            new |= ends >= stale[seq_id]
        pos = ubatch.pos.reshape(-1, ubatch.n_tokens)
        for s, where in ubatch.by_seq():
            if s == seq_id:
                new[seq.find_pools(pos[:, where], self.pool)] = True
        return new

    def _mark_stale(self, seq_id: int, p0: int) -> None:
        """Mark positions from p0 on as stale; seq_id -1: in all sequences."""
        found = dict(self.stale)
        for s in range(self.n_seq_max) if seq_id < 0 else [seq_id]:
            first = self.seq_pos_min(s)
            found[s] = min(found.get(s, p0), p0 if p0 > first else 0)
        self.stale = found

    def discard(self, ubatch: UBatch) -> list[int]:
        lost = super().discard(ubatch)
        taken = self.taken
        if taken is not None and taken.ubatch is ubatch:
            firsts = [*self.stale.items(), *taken.stale.items()]
            stale: dict[int, int] = {}
            for s, p0 in firsts:
                stale[s] = min(stale.get(s, p0), p0)
            self.stale, self.safe = stale, taken.safe
        return lost

    def clear(self, data: bool = True) -> None:
        super().clear(data)
        self._mark_stale(-1, 0)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        self._mark_stale(seq_id, span(p0, p1)[0])
        return super().seq_rm(seq_id, p0, p1)

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        super().seq_cp(src, dst, p0, p1)
        for s in (src, dst):
            self._mark_stale(s, 0)

    def seq_copy_prefix(self, src: int, dst: int, n: int) -> None:
        super().seq_copy_prefix(src, dst, n)
        self._mark_stale(dst, 0)

    def seq_keep(self, seq_id: int) -> None:
        super().seq_keep(seq_id)
        self._mark_stale(-1, 0)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        p0, p1 = span(p0, p1)
        self._mark_stale(seq_id, max(p0 + min(delta, 0), 0))
        super().seq_add(seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        super().seq_div(seq_id, p0, p1, d)
        self._mark_stale(seq_id, 0)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        super().state_read(io, seq_id, partial)
        self._mark_stale(seq_id, 0)


def _by_position(cells: KVCells, seq_id: int) -> tuple[I32, Indices]:
    """Return a sequence's positions in order, and their cells."""
    found = np.flatnonzero(cells.seq[seq_id])
    pos: I32 = cells.pos[found]
    if (np.diff(pos) < 0).any():
        order = np.argsort(pos, kind="stable")
        pos, found = pos[order], found[order]
    return pos, found


class KPoolContext(KVCacheContext):
    """A batch's ubatches in such a cache; `plan` is of the current one."""

    kv: KPoolCache

    def __init__(self, kv: KPoolCache, places: list[SlotInfo], ubatches: list[UBatch]) -> None:
        super().__init__(kv, places, ubatches)
        n = kv.kv_size // kv.pool * kv.n_seq_max
        self.plan = PoolPlan(kv.pool, {}, np.ones(n, np.bool_), True)

    def apply(self) -> None:
        super().apply()
        self.plan = self.kv.plan(self.get_ubatch())

    @property
    def is_settled(self) -> bool:
        return self.get_ubatch().n_tokens == 1

    def count_room(self, ubatch: UBatch) -> int:
        plan = self.plan
        another = pool_pad(plan.is_new.size + 1) == plan.n_pool and plan.n_new == 1 and plan.safe
        return min(1, super().count_room(ubatch)) if another else 0

    def follow(self, ubatch: UBatch) -> None:
        super().follow(ubatch)
        self.plan = self.kv.plan(ubatch)
