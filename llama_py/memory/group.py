"""Memory of a context: caches and states for the same positions
(llama-kv-cache-iswa.cpp, llama-memory-hybrid.cpp, llama-memory-hybrid-iswa.cpp, ...).

The layers' specs decide the parts: one cache for full attention, one per type of window, one for
indexer keys, and one memory of states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from ggml_py.machine.shield import postpone_interrupts
from ggml_py.tensor import Tensor
from llama_py.batch import END, SeqIds, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory.group_context import GroupContext
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.kv import KVCache
from llama_py.memory.part import MemoryPart, StateMemory, span


class MemoryGroup:
    """The parts of a memory (llama_memory_i). Position ranges are [p0, p1); a negative p0 means 0,
    a negative p1 no end. seq_id -1 in seq_rm, state_write and state_read means all sequences.
    Changes of sequences are atomic, also under Ctrl-C.

    parts   all parts, in the order of a saved state
    caches  KV caches by name; recr  the recurrent part, or None
    of      name of each layer's cache
    pooled  a block of positions belongs to one sequence (specs.Index)
    intact  by sequence: number of first positions that were not removed or changed after the
            user of this record created its entry
    changes  number of changes, which may affect the next token
    """

    def __init__(
        self,
        caches: Mapping[str, KVCache],
        recr: StateMemory | None,
        of: Mapping[int, str],
        pooled: bool = False,
    ) -> None:
        self.caches = dict(caches)
        self.recr = recr
        states = [] if recr is None else [recr]
        self.parts: list[MemoryPart] = [*self.caches.values(), *states]
        self.of = dict(of)
        self.pooled = pooled
        self.intact: dict[int, int] = {}
        self.changes = 0
        self._copied: tuple[SeqIds, int] | None = None
        only_states = not self.caches and recr is not None and recr.any_order
        self._order = [*range(recr.size)] if only_states and recr is not None else []

    def tensors(self) -> list[Tensor]:
        """Return all tensors that keep data between batches, each named after its layer."""
        return [t for part in self.parts for t in part.all_tensors()]

    @property
    def windows(self) -> list[KVCache]:
        """Caches that discard cells outside their sliding window."""
        return [kv for kv in self.caches.values() if kv.window is not None]

    @property
    def supports_rollback(self) -> bool:
        """True if any positions at the end of a sequence can be removed."""
        return all(part.supports_rollback for part in self.parts)

    @property
    def can_shift(self) -> bool:
        """True if `seq_shift` is possible (llama_memory_can_shift)."""
        try:
            self.check_shift("seq_shift", within=True)
        except ContextError:
            return False
        return True

    @property
    def n_back(self) -> int:
        """Number of earlier states stored when the last tokens are computed together."""
        return max((part.n_rs_seq for part in self.parts), default=0)

    @property
    def by_token(self) -> list[MemoryPart]:
        """Parts that store data per token, which a `partial` state omits."""
        return [part for part in self.parts if part.by_token]

    def _note_change(self, seq_id: int, p0: int = 0) -> None:
        """Note that positions from p0 on changed; seq_id -1: in all sequences."""
        self.changes += 1
        for s in [*self.intact] if seq_id < 0 else [seq_id]:
            if s in self.intact:
                self.intact[s] = min(self.intact[s], max(p0, 0))

    @property
    def n_stream(self) -> int:
        """Parts of the caches: one, or one for each sequence."""
        return max((kv.n_stream for kv in self.caches.values()), default=1)

    @property
    def streams(self) -> Sequence[int]:
        """The part of the caches by sequence, if there are several (`adjoin` changes them). Without
        caches, the order of sequences in a ubatch, which must be consecutive in llama.cpp."""
        caches = (kv.streams for kv in self.caches.values() if kv.n_stream > 1)
        return next(caches, self._order)

    @property
    def allows_unequal_lengths(self) -> bool:
        """True if a ubatch may have more tokens of one sequence than of another."""
        return self.recr is None and self.n_stream == 1

    def init_batch(
        self, splitter: BatchSplitter, n_ubatch: int, whole_seqs: bool = False
    ) -> GroupContext:
        """Split a batch and find cells for all its tokens; ContextError and no change without room.

        whole_seqs  process sequences one after another if there is a recurrent part
        """
        self.changes += 1
        splitter.apart = self.pooled and self._shares_cells(splitter)
        splitter.streams = self.streams
        failed: ContextError | None = None
        for split in self._ways_to_split(splitter, n_ubatch, whole_seqs):
            splitter.split_reset()
            ubatches = list(iter(split, None))
            try:
                return self._place(ubatches)
            except ContextError as e:
                failed = failed or e
        raise failed or ContextError("the batch is empty; pass at least one token")

    def first_stream(self, seq_ids: Sequence[int]) -> int:
        """Return the first of these sequences' streams if they are consecutive, so that one ubatch
        computes them together; otherwise -1."""
        by_seq = self.streams
        own = [by_seq[s] for s in seq_ids] if by_seq else []
        return min(own) if own and max(own) - min(own) < len(own) else -1

    def ways_to_adjoin(self, seq_ids: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
        """Return swaps that make these sequences' streams consecutive, as pairs of sequences, by
        the resulting first stream. Empty if streams cannot move."""
        by_seq = self.streams
        if not by_seq or not all(part.any_order for part in self.parts):
            return {}
        seqs = sorted(range(len(by_seq)), key=lambda s: by_seq[s])  # by stream
        wanted, n = {*seq_ids}, len(seq_ids)

        def pairs(start: int) -> list[tuple[int, int]]:
            window = seqs[start : start + n]
            spare = [s for s in window if s not in wanted]
            outside = [s for s in seqs[:start] + seqs[start + n :] if s in wanted]
            return [*zip(outside, spare, strict=True)]

        return {start: pairs(start) for start in range(len(seqs) - n + 1)}

    def swap_bytes(self, pairs: Iterable[tuple[int, int]]) -> int:
        """Return the bytes of keys and values that move if the streams of sequences are swapped."""
        return sum(kv.stream_bytes(s) for one in pairs for s in one for kv in self.caches.values())

    @postpone_interrupts
    def adjoin(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Swap the streams of sequences, a result of `ways_to_adjoin`. All values stay the same;
        a batch then needs the sequences in the order of `streams` to be one ubatch."""
        self.changes += 1
        for a, b in pairs:
            for kv in self.caches.values():
                kv.seq_swap(a, b)
            if order := self._order:
                order[a], order[b] = order[b], order[a]

    @contextmanager
    def share_first_sequence(self, splitter: BatchSplitter) -> Iterator[None]:
        """Decode a batch for its first sequence only, and copy the result to the others. The tokens
        must all belong to the same sequences, which are stored separately, and are empty or were
        copied in this way by the last batch."""
        ids = splitter.seq_id[0]
        apart = splitter.has_cpl and self.recr is not None and self.recr.apart
        same = apart and all(other == ids for other in splitter.seq_id)
        equal = self._copied == (ids, self.changes)
        copies = same and (equal or all(self.seq_pos_max(s) < 0 for s in ids))
        if copies:
            splitter.give_to_first()
        yield
        for s in ids[1:] if copies else ():
            self.seq_rm(s)
            self.seq_cp(ids[0], s)
        if copies:
            self._copied = ids, self.changes

    def _shares_cells(self, splitter: BatchSplitter) -> bool:
        """Return True if a cell belongs to several sequences, or will with this batch."""
        cells = (cells for kv in self.caches.values() for cells in kv.cells)
        return splitter.has_cpl or any(bool((c.n_seq > 1).any()) for c in cells)

    def _ways_to_split(
        self, splitter: BatchSplitter, n_ubatch: int, whole_seqs: bool
    ) -> Iterator[Callable[[], UBatch | None]]:
        if splitter.by_turns:
            yield lambda: splitter.split_seq(n_ubatch)
        elif not self.parts:  # tokens see only their ubatch
            yield lambda: splitter.split_simple(splitter.n_tokens)
        elif self.recr is not None and whole_seqs and self.recr.whole_seqs:
            yield lambda: splitter.split_seq(n_ubatch)
        elif self.recr is not None:
            recr, sequential = self.recr, not self.caches or self.n_stream > 1
            yield lambda: recr.split(splitter, n_ubatch, sequential)
        elif self.n_stream > 1:
            yield lambda: splitter.split_equal(n_ubatch, True)
        else:
            yield lambda: splitter.split_simple(n_ubatch)
            if self.windows:  # equal positions in one ubatch may need fewer cells of a window
                yield lambda: splitter.split_equal(n_ubatch, False)

    def _place(self, ubatches: list[UBatch]) -> GroupContext:
        recr = None if self.recr is None else self.recr.place(ubatches)
        caches = {name: kv.place(ubatches) for name, kv in self.caches.items()}
        return GroupContext(self.of, caches, recr, ubatches)

    def init_full(self, n_seqs: int | None = None) -> GroupContext:
        """Return a context as if memory were full, to measure graphs of n_seqs sequences (None:
        all)."""
        recr = None if self.recr is None else self.recr.init_full(n_seqs)
        caches = {name: kv.init_full(n_seqs) for name, kv in self.caches.items()}
        return GroupContext(self.of, caches, recr, [])

    def discard(self, ubatch: UBatch) -> list[int]:
        """Discard a ubatch that was not computed. Return sequences that had to be removed entirely,
        because their earlier state is lost as well."""
        for seq_id, where in ubatch.by_seq():
            self._note_change(seq_id, int(ubatch.pos[: ubatch.n_tokens][where].min()))
        lost = sorted({s for part in self.parts for s in part.discard(ubatch)})
        for seq_id in lost:
            self._note_change(seq_id)
            for part in self.parts:
                part.seq_rm(seq_id)
        return lost

    @postpone_interrupts
    def clear(self, data: bool = True) -> None:
        """Forget everything; with `data` zero the tensors as well."""
        self._note_change(-1)
        for part in self.parts:
            part.clear(data)

    @postpone_interrupts
    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions of a sequence. False, and no change, if only a part can be removed."""
        n_seq_max = max((kv.n_seq_max for kv in self.windows), default=0)
        seqs = range(n_seq_max) if seq_id < 0 else [seq_id]
        if not all(self._can_go_back(s, *span(p0, p1)) for s in seqs):
            return False
        states_first = reversed(self.parts)  # caches always succeed
        if not all(part.seq_rm(seq_id, p0, p1) for part in states_first):
            return False
        self._note_change(seq_id, p0)
        return True

    def _can_go_back(self, seq_id: int, p0: int, p1: int) -> bool:
        """Return True if the windows of a token at p0 are still stored, for continuing there."""
        if p0 == 0 or not self.windows or not p0 <= self.seq_pos_max(seq_id) < p1:
            return True
        firsts = [kv.seq_pos_min(seq_id) for kv in self.caches.values() if kv.window is None]
        for kv in self.windows:
            assert kv.window is not None
            first = max([*firsts, p0 - kv.window.size + 1])
            if not 0 <= kv.seq_pos_min(seq_id) <= max(first, 0):
                return False
        return True

    @postpone_interrupts
    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Copy src's positions to dst. ContextError, and no change, if a cache cannot."""
        for part in reversed(self.parts):
            part.check_copy(src, dst, p0, p1)
        if src != dst:
            self._note_change(dst)
        for part in self.parts:
            part.seq_cp(src, dst, p0, p1)

    @postpone_interrupts
    def seq_copy_prefix(self, src: int, dst: int, n: int) -> None:
        """Copy the first n positions of src to dst, which loses its content. This copies rows per
        token only; windows and states are empty until `state_read`."""
        self.seq_rm(dst)
        for part in self.by_token:
            part.seq_copy_prefix(src, dst, n)

    @postpone_interrupts
    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences."""
        self.changes += 1
        for other in self.intact.keys() - {seq_id}:
            self._note_change(other)
        for part in self.parts:
            part.seq_keep(seq_id)

    @postpone_interrupts
    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move positions by delta. ContextError, and no change, if the result exceeds the range of
        positions. Caches remove positions below 0; states cannot."""
        self._check_moved(seq_id, *span(p0, p1), delta)
        self.check_shift("seq_add")
        self._note_change(-1, p0)  # other sequences may share the cells
        for part in self.parts:
            part.seq_add(seq_id, p0, p1, delta)

    @postpone_interrupts
    def seq_shift(self, seq_id: int, p0: int, n: int) -> None:
        """Remove n positions of a sequence from p0 on, and move later positions down.

        Other sequences lose the cells that move.

        Raises:
            ContextError: The memory cannot be shifted, and is unchanged.
        """
        self.check_shift("seq_shift", within=True)
        for kv in self.caches.values():
            for other in kv.sharing(seq_id, p0 + n):
                self.seq_rm(other, p0 + n, -1)
        self.seq_rm(seq_id, p0, p0 + n)
        self.seq_add(seq_id, p0 + n, -1, -n)

    @postpone_interrupts
    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide positions by d."""
        if d < 1:
            raise ContextError(f"seq_div: d must be at least 1, got {d}")
        self.check_shift("seq_div")
        d = min(d, END)  # every position becomes 0
        self._note_change(-1, p0)
        for part in self.parts:
            part.seq_div(seq_id, p0, p1, d)

    def _check_moved(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        tops = [min(part.seq_pos_max(seq_id), p1 - 1) for part in self.parts]
        top = max((t for t in tops if t >= p0), default=-1)
        if top >= 0 and top + delta >= END:
            raise ContextError(f"seq_add: position must be less than {END}, got {top} + {delta}")
        if self.recr is not None:
            self.recr.check_move(seq_id, p0, p1, delta)
        if abs(delta) > END:  # even if no position moves
            raise ContextError(f"seq_add: delta must be within {END} positions, got {delta}")

    def check_shift(self, what: str, within: bool = False) -> None:
        """Raise ContextError if positions cannot move, or `within` a sequence cannot be removed."""
        if self.recr is not None:
            self.recr.check_shift(what, within)
        if len({kv.kv_size for kv in self.caches.values()}) > 1:
            raise ContextError(
                f"{what}: positions of a model with attention windows cannot be moved; create the "
                "context with swa_full=True"
            )
        for kv in self.caches.values():
            kv.check_shift(what, within)

    def seq_pos_min(self, seq_id: int) -> int:
        """Return the smallest position of a sequence that all parts have; -1 if it is empty."""
        return max((part.seq_pos_min(seq_id) for part in self.parts), default=-1)

    def seq_pos_max(self, seq_id: int) -> int:
        """Return the largest position of a sequence; -1 if it is empty."""
        return min((part.seq_pos_max(seq_id) for part in self.parts), default=-1)

    def memory_breakdown(self) -> dict[str, int]:
        """Return the bytes of memory by device name."""
        sizes: dict[str, int] = {}
        for part in self.parts:
            for name, size in part.memory_breakdown().items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def cache_bytes(self, n_checkpoints: int) -> int:
        """Return the usual size of a prefix cache: four full contexts of parts that can be rolled
        back, and of others the checkpoints of all sequences."""
        return sum(
            sum(part.memory_breakdown().values())
            * (4 if part.supports_rollback else max(4, n_checkpoints))
            for part in self.parts
        )

    def layout(self) -> str:
        """Describe the properties that a saved state must match: parts, layers, types, row
        sizes."""
        names = [*(f"{name} " for name in self.caches), ""]
        return " + ".join(
            name + part.layout() for name, part in zip(names, self.parts, strict=False)
        )

    def _state_parts(self, partial: bool) -> list[MemoryPart]:
        """Return the parts of a state; `partial` omits parts that seq_rm can always truncate."""
        return [part for part in self.parts if not (partial and part.supports_rollback)]

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        """Write sequences; `partial` omits parts that seq_rm can always truncate."""
        for part in self._state_parts(partial):
            part.state_write(io, seq_id, partial)

    @postpone_interrupts
    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        """Replace sequences by saved sequences; ContextError if they do not fit."""
        self._note_change(seq_id)
        try:
            for part in self._state_parts(partial):
                part.state_read(io, seq_id, partial)
        except ContextError:  # an incomplete state is invalid
            for part in self.parts:
                part.seq_rm(seq_id)
            raise

    copied = Former("share_first_sequence")
    goes_back = Former("supports_rollback")
    mixes = Former("allows_unequal_lengths")
    seq_take = Former("seq_copy_prefix")
