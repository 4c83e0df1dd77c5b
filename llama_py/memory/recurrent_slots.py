"""Assignment of recurrent states to sequences, and operations on sequences
(llama-memory-recurrent.cpp)."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy

from ggml_py.errors import ContextError
from llama_py.batch import UBatch
from llama_py.memory.part import StateMemory, check_seqs
from llama_py.memory.recurrent_cells import Cell, steps_of_one


class RecurrentSlots(StateMemory):
    """The cells of a recurrent memory, without their states.

    head, n     cells of the current ubatch; `rows` are the source rows of their states
    rs_z        row that the graph zeroes for new states; -1: no row
    moves       old and new cells of states that move with their snapshots before the graph runs;
                other states move by `rows`
    """

    def __init__(self, size: int, n_rs_seq: int, causal: bool = True) -> None:
        super().__init__(size, n_rs_seq, causal)
        self.reset()

    @property
    def has_snapshots(self) -> bool:
        """True if earlier states are stored."""
        return self.n_rs_seq > 0 and self.causal

    def reset(self) -> None:
        """Reset every cell to empty."""
        self.cells = [Cell() for _ in range(self.size)]
        self.rs_idx = [0] * self.size  # tokens to roll back at the next read, by sequence
        self.head = 0
        self.used = 0
        self.n = 0
        self.rs_z = -1
        self.rows: list[int] = []
        self.moves: list[tuple[int, int]] = []
        self.applied: UBatch | None = None

    def prepare(self, ubatches: list[UBatch]) -> None:
        """Check that all ubatches fit, without a change. ContextError if not."""
        trial = copy(self)
        trial.cells = [c.copy() for c in self.cells]
        for ubatch in ubatches:
            trial.find_slot(ubatch)

    def find_slot(self, ubatch: UBatch) -> None:
        """Move the ubatch's sequences into adjacent cells [head, head + n), one cell per sequence,
        and note the source of each state."""
        seqs = ubatch.seq_id[:: ubatch.n_seq_tokens]
        check_seqs(self.size, *(s for ids in seqs for s in ids))
        if self.head > self.used + 2 * len(seqs):
            self.head = 0
        self._unshare(seqs)
        low, high = self._own_cells(seqs)
        self._gather(seqs, low)
        self._keep_snapshots(range(low + len(seqs), high + 1))
        pos = ubatch.pos[: ubatch.n_tokens].reshape(len(seqs), ubatch.n_seq_tokens)
        for s, ids in enumerate(seqs):
            cell = self.cells[low + s]
            cell.pos = int(pos[s, -1])
            cell.n_back = min(steps_of_one(pos[s]), self.n_rs_seq) if self.has_snapshots else 0
            cell.seq_id = set(ids)
            for seq_id in ids:
                self.cells[seq_id].tail = low + s
        self._stage(low, high)
        self.head = low
        self.n = high - low + 1
        self.used = sum(1 for c in self.cells if c.seq_id)

    def _unshare(self, seqs: list[tuple[int, ...]]) -> None:
        """Drop the states of sequences that now share another's tokens."""
        for ids in seqs:
            for seq_id in ids[1:]:
                self._leave(seq_id)

    def _leave(self, seq_id: int) -> None:
        """Take a sequence out of its cell."""
        tail, self.cells[seq_id].tail = self.cells[seq_id].tail, -1
        if tail >= 0:
            cell = self.cells[tail]
            cell.seq_id.discard(seq_id)
            if not cell.seq_id:
                self._empty(cell)

    def _empty(self, cell: Cell) -> None:
        if cell.pos >= 0:
            self.used -= 1
        cell.pos = cell.src = -1
        cell.n_back = 0
        cell.seq_id = set()

    def _next_empty(self, start: int) -> int:
        for i in range(self.size):
            at = (start + i) % self.size
            if not self.cells[at].seq_id:
                return at
        raise ContextError(f"all {self.size} recurrent states are in use; use a larger n_seq_max")

    def _own_cells(self, seqs: list[tuple[int, ...]]) -> tuple[int, int]:
        """Give each sequence a separate cell; return the lowest and highest index."""
        following = self.head
        tails = []
        for ids in seqs:
            meta = self.cells[ids[0]]
            if meta.tail < 0 or len(self.cells[meta.tail].seq_id) > 1:
                following = self._next_empty(following)
                cell = self.cells[following]
                if meta.tail >= 0:
                    shared = self.cells[meta.tail]
                    cell.pos, cell.src = shared.pos, shared.src
                    shared.seq_id.discard(ids[0])
                cell.seq_id = {ids[0]}
                meta.tail = following
            tails.append(meta.tail)
        return min(tails), max(tails)

    def _gather(self, seqs: list[tuple[int, ...]], low: int) -> None:
        """Swap cells to put the ubatch's sequences at low, low + 1, ... in its order."""
        for i, cell in enumerate(self.cells):
            cell.at = i
        for s, ids in enumerate(seqs):
            dst, src = low + s, self.cells[ids[0]].tail
            if dst == src:
                continue
            a, b = self.cells[dst], self.cells[src]
            a.pos, b.pos = b.pos, a.pos
            a.src, b.src = b.src, a.src
            a.seq_id, b.seq_id = b.seq_id, a.seq_id
            a.n_back, b.n_back = b.n_back, a.n_back
            a.at, b.at = b.at, a.at
            for c in self.cells:
                if c.tail in (src, dst):
                    c.tail = dst if c.tail == src else src

    def _keep_snapshots(self, others: range) -> None:
        """Move all cells as a whole if moving states alone would separate cells `others` from their
        snapshots. The sequences of these cells are not in the ubatch."""
        self.moves = []
        if any(self.cells[i].n_back and self.cells[i].at != i for i in others):
            self.moves = [(cell.at, i) for i, cell in enumerate(self.cells) if cell.at != i]
            moved = dict(self.moves)
            for cell in self.cells:
                cell.src = moved.get(cell.src, cell.src)

    def _stage(self, low: int, high: int) -> None:
        """Note the rows to read; states without one read row rs_z, which the graph zeroes."""
        referenced = {c.src for c in self.cells}
        span_ = range(low, high + 1)
        self.rs_z = next((i for i in span_ if i not in referenced), -1)
        for i in span_:
            cell = self.cells[i]
            cell.src0 = cell.src if cell.src >= 0 else self.rs_z
            cell.src = i

    def apply_ubatch(self, ubatch: UBatch) -> None:
        """Apply a ubatch; set `rows` to the source rows of its states [head, head + n)."""
        self.applied, self.rows = ubatch, []
        self.find_slot(ubatch)
        for cell in self.cells[self.head : self.head + self.n]:
            back = self.rs_idx[min(cell.seq_id)] if cell.seq_id else 0
            self.rows.append(back * self.size + cell.src0)
            for seq_id in cell.seq_id:
                self.rs_idx[seq_id] = 0
        groups = range(0, self.size * (1 + self.n_rs_seq), self.size)
        self._copy_rows([(g + old, g + new) for old, new in self.moves for g in groups])

    def is_settled(self, ubatch: UBatch) -> bool:
        """Return True if all states of the current ubatch, with equal tokens per sequence,
        are in place and no others move."""
        here = range(self.head, self.head + self.n)
        if self.rows != [*here] or self.rs_z >= 0 or self.moves or self.n != ubatch.n_seqs:
            return False
        own = zip(here, ubatch.seq_id[:: ubatch.n_seq_tokens], strict=True)
        return all(self.cells[i].seq_id == set(ids) and len(ids) == 1 for i, ids in own)

    def follow(self, ubatch: UBatch) -> None:
        """Apply the same number of further tokens of each sequence, without a gap."""
        self.applied, n = ubatch, ubatch.n_seq_tokens
        n_back = min(n - 1, self.n_rs_seq) if self.has_snapshots else 0
        for i in range(ubatch.n_seqs):
            cell = self.cells[self.head + i]
            cell.pos, cell.n_back = int(ubatch.pos[n * i + n - 1]), n_back

    def _changed_seqs(self, ubatch: UBatch) -> set[int]:
        """Return the sequences with states that the graph was writing or moving."""
        moved = {s for _, new in self.moves for s in self.cells[new].seq_id}
        lost = moved.union(ubatch.seq_id_unq)
        for i, row in enumerate(self.rows):
            cell = self.cells[self.head + i]
            if i < ubatch.n_seqs or row != self.head + i:
                lost |= cell.seq_id
                cell.src = -1
        return lost

    def _entry(self, seq_id: int) -> Cell | None:
        tail = self.cells[seq_id].tail
        return self.cells[tail] if tail >= 0 else None

    def _forget(self, seq_id: int) -> None:
        tail = self.cells[seq_id].tail
        self._leave(seq_id)
        self.rs_idx[seq_id] = 0
        if tail >= 0 and not self.cells[tail].seq_id:
            self.head = min(self.head, tail)

    @abstractmethod
    def _copy_rows(self, rows: list[tuple[int, int]]) -> None:
        """Copy states between rows (old, new); read all before writing the first."""

    def _roll_back(self, seq_id: int, back: int) -> bool:
        """Roll back to a snapshot; a second time only after decoding further tokens."""
        cell = self.cells[self.cells[seq_id].tail]
        if back > cell.n_back:
            return False
        if len(cell.seq_id) > 1:
            return self._split_off(seq_id, back)
        self.rs_idx[seq_id] = back
        cell.pos -= back
        cell.n_back = 0
        return True

    def _split_off(self, seq_id: int, back: int) -> bool:
        """Copy the state of `back` tokens ago to a separate cell for this sequence; other sequences
        keep the shared cell. False without a free cell."""
        shared = self.cells[seq_id].tail
        if self.used == self.size:
            return False
        i = self._next_empty(self.head)
        self._copy_rows([(back * self.size + shared, i)])
        self.cells[shared].seq_id.discard(seq_id)
        cell = self.cells[i]
        cell.pos, cell.src, cell.n_back, cell.seq_id = self.cells[shared].pos - back, i, 0, {seq_id}
        self.cells[seq_id].tail = i
        self.used += 1
        return True

    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        check_seqs(self.size, src, dst)
        if src == dst:
            return
        self._leave(dst)
        tail = self.cells[src].tail
        if tail >= 0:
            self.cells[tail].seq_id.add(dst)
            self.cells[dst].tail = tail
        self.rs_idx[dst] = self.rs_idx[src]
