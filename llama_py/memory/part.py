"""Base classes of the parts of a memory: `MemoryPart`, and `StateMemory` for states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from ggml_py.backend import Buffer, Device
from ggml_py.errors import ContextError
from ggml_py.tensor import Tensor
from llama_py.batch import END, UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory.io import StateReader, StateWriter
from llama_py.memory.ubatch_cursor import UBatchCursor


def check_seqs(size: int, *seqs: int) -> None:
    """Raise ContextError for a sequence outside [0, size)."""
    for s in seqs:
        if not 0 <= s < size:
            raise ContextError(f"seq_id must be in [0, {size}), got {s}; use a larger n_seq_max")


def span(p0: int, p1: int) -> tuple[int, int]:
    """Return a position range with negative (open) ends replaced."""
    return max(p0, 0), END if p1 < 0 else p1


class MemoryPart(ABC):
    """One part of a `MemoryGroup`: tensors, and a record of their sequences.

    Position ranges are [p0, p1); a negative p0 means 0, a negative p1 no end. seq_id -1 in seq_rm,
    state_write and state_read means all sequences.

    Attributes:
        buffers: Devices, and the part's buffers there.
        n_rs_seq: Number of earlier states to roll back to.
        any_order: A ubatch may have sequences in any order.
    """

    buffers: Sequence[tuple[Device, Buffer]]
    n_rs_seq: int = 0
    any_order: ClassVar = False

    @property
    @abstractmethod
    def supports_rollback(self) -> bool:
        """True if `seq_rm` can always remove the last positions of a sequence."""

    @property
    def by_token(self) -> bool:
        """True if each token has rows, which a `partial` saved state omits."""
        return self.supports_rollback

    @abstractmethod
    def all_tensors(self) -> list[Tensor]:
        """List the tensors that keep something between batches."""

    def memory_breakdown(self) -> dict[str, int]:
        """Sum the bytes by device name."""
        sizes: dict[str, int] = {}
        for device, buffer in self.buffers:
            sizes[device.name] = sizes.get(device.name, 0) + buffer.size
        return sizes

    @abstractmethod
    def layout(self) -> str:
        """Describe the properties that must agree to read a saved state."""

    @abstractmethod
    def place(self, ubatches: list[UBatch]) -> UBatchCursor:
        """Find places for all ubatches; ContextError and no change if they do not fit."""

    @abstractmethod
    def init_full(self, n_seqs: int | None = None) -> UBatchCursor:
        """Return the walk of a full memory, for graphs of n_seqs sequences that are measured."""

    @abstractmethod
    def discard(self, ubatch: UBatch) -> list[int]:
        """Discard a ubatch that was not computed, even if it was applied incompletely.

        Returns:
            Sequences that had to be removed, because their earlier state is lost.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget every sequence; the tensors keep their bytes."""

    def clear(self, data: bool = True) -> None:
        """Forget every sequence; with `data` zero the tensors as well."""
        self.reset()
        for _, buffer in self.buffers if data else ():
            buffer.clear()

    @abstractmethod
    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        """Remove positions of a sequence. False, and no change, if this is not possible."""

    @abstractmethod
    def check_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        """Raise ContextError if `seq_cp` is not possible."""

    @abstractmethod
    def seq_cp(self, src: int, dst: int, p0: int = -1, p1: int = -1) -> None:
        """Copy positions of src to dst."""

    def seq_copy_prefix(self, src: int, dst: int, n: int) -> None:
        """Copy the rows of src's first n tokens to dst, which is empty, if they are `by_token`."""
        raise ContextError(
            f"seq_copy_prefix: {type(self).__name__} does not store rows per token; use seq_cp"
        )

    @abstractmethod
    def seq_keep(self, seq_id: int) -> None:
        """Remove all other sequences."""

    @abstractmethod
    def check_shift(self, what: str, within: bool = False) -> None:
        """Raise ContextError if positions cannot move, or `within` a sequence cannot be removed."""

    @abstractmethod
    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move positions by delta."""

    @abstractmethod
    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        """Divide positions by d."""

    @abstractmethod
    def seq_pos_min(self, seq_id: int) -> int:
        """Return the smallest position of a sequence; -1 if it is empty."""

    @abstractmethod
    def seq_pos_max(self, seq_id: int) -> int:
        """Return the largest position of a sequence; -1 if it is empty."""

    @abstractmethod
    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        """Write sequences; `partial` omits rows of parts that are `by_token`."""

    @abstractmethod
    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        """Replace sequences by saved sequences; ContextError if they do not fit."""


class CacheEntry(Protocol):
    """A sequence's record: its last position, and how many of its last tokens can be removed."""

    pos: int
    n_back: int


class StateMemory(MemoryPart):
    """States of recurrent layers: one per sequence, which represents all its tokens.

    A sequence is removed entirely, or rolled back to a snapshot of an earlier state.

    Attributes:
        size: Number of sequences.
        causal: States depend on earlier tokens only, so that snapshots are useful.
        applied: The last applied ubatch.
        moves_on: Positions can be moved.
        whole_seqs: Sequences are computed one after another if all tokens are outputs.
        apart: A token cannot be in several sequences.
    """

    moves_on: ClassVar = True
    whole_seqs: ClassVar = True
    apart: ClassVar = False

    def __init__(self, size: int, n_rs_seq: int, causal: bool = True) -> None:
        self.size = size
        self.n_rs_seq = n_rs_seq
        self.causal = causal
        self.applied: UBatch | None = None

    @property
    def supports_rollback(self) -> bool:
        return False

    @property
    def n_tail(self) -> int:
        """Number of last tokens that must be in one ubatch to get snapshots."""
        return self.n_rs_seq + 1 if self.n_rs_seq else 0

    @abstractmethod
    def split(self, splitter: BatchSplitter, n_ubatch: int, sequential: bool) -> UBatch | None:
        """Take the next ubatch from a batch; None at its end."""

    @abstractmethod
    def apply_ubatch(self, ubatch: UBatch) -> None:
        """Take the ubatch's place. A sequence that starts does so from zeros."""

    @abstractmethod
    def _entry(self, seq_id: int) -> CacheEntry | None:
        """Return the record of a sequence; None if it is empty."""

    @abstractmethod
    def _forget(self, seq_id: int) -> None:
        """Remove a sequence entirely."""

    @abstractmethod
    def _roll_back(self, seq_id: int, back: int) -> bool:
        """Remove the last `back` tokens of a sequence. False if the snapshot is missing."""

    def _changed_seqs(self, ubatch: UBatch) -> set[int]:
        """Return the sequences that a discarded ubatch's graph may have changed."""
        return set(ubatch.seq_id_unq)

    def discard(self, ubatch: UBatch) -> list[int]:
        lost = self._changed_seqs(ubatch) if self.applied is ubatch else set()
        for seq_id in lost:
            self._forget(seq_id)
        return sorted(lost)

    def reset(self) -> None:
        for seq_id in range(self.size):
            self._forget(seq_id)

    def seq_rm(self, seq_id: int, p0: int = -1, p1: int = -1) -> bool:
        p0, p1 = span(p0, p1)
        if seq_id < 0:
            if (p0, p1) == (0, END):
                self.reset()
            return (p0, p1) == (0, END) or p0 == p1
        pos = self.seq_pos_max(seq_id)
        if not p0 <= pos < p1:
            return self._rm_elsewhere(seq_id, p0, p1)
        if p0 > 0:
            return self._roll_back(seq_id, pos - p0 + 1)
        self._forget(seq_id)
        return True

    def _rm_elsewhere(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove positions before the last one. A state does not store them, so return True."""
        return True

    def check_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        check_seqs(self.size, src, dst)

    def seq_keep(self, seq_id: int) -> None:
        check_seqs(self.size, seq_id)
        for other in range(self.size):
            if other != seq_id:
                self._forget(other)

    def check_shift(self, what: str, within: bool = False) -> None:
        if within:
            raise ContextError(
                f"{what}: a recurrent state cannot remove part of its past; remove the whole "
                "sequence and decode its tokens again"
            )
        if not self.moves_on:
            raise ContextError(
                f"{what}: positions of a model with compressed keys cannot be moved; decode the "
                "tokens again"
            )

    def check_move(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Raise ContextError if the state would be at a position below 0."""
        entry = self._find_entry(seq_id, p0, p1)
        if entry is not None and entry.pos + delta < 0:
            raise ContextError(
                f"seq_add: the state of sequence {seq_id} is at position {entry.pos} and cannot "
                f"move to {entry.pos + delta}; use seq_rm"
            )

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        self.check_shift("seq_add")
        p0, p1 = span(p0, p1)
        entry = self._find_entry(seq_id, p0, p1)
        if entry is not None:
            entry.n_back = min(entry.n_back, entry.pos - p0)
            entry.pos += delta

    def seq_div(self, seq_id: int, p0: int, p1: int, d: int) -> None:
        self.check_shift("seq_div")
        entry = self._find_entry(seq_id, *span(p0, p1))
        if entry is not None:
            entry.n_back = 0
            entry.pos //= d

    def _find_entry(self, seq_id: int, p0: int, p1: int) -> CacheEntry | None:
        """Return the record of a sequence if its last position is in [p0, p1), else None."""
        check_seqs(self.size, seq_id)
        entry = self._entry(seq_id)
        return entry if entry is not None and p0 <= entry.pos < p1 else None

    def seq_pos_min(self, seq_id: int) -> int:
        return self.seq_pos_max(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        check_seqs(self.size, seq_id)
        entry = self._entry(seq_id)
        return -1 if entry is None else entry.pos


class NumberedStates(StateMemory):
    """States stored by sequence number, in memory and in a saved state."""

    def state_write(self, io: StateWriter, seq_id: int = -1, partial: bool = False) -> None:
        chosen = range(self.size) if seq_id < 0 else [seq_id]
        found = [(s, entry) for s in chosen if (entry := self._entry(s)) is not None]
        io.count(len(found))
        for s, entry in found:
            io.count(s)
            io.count(entry.pos)
            self._write(io, s, partial)

    def state_read(self, io: StateReader, seq_id: int = -1, partial: bool = False) -> None:
        for s in range(self.size) if seq_id < 0 else [seq_id]:
            check_seqs(self.size, s)
            self._make_room(s, partial)
        for _ in range(io.count()):
            written, pos = io.count(), io.count()
            s = written if seq_id < 0 else seq_id
            check_seqs(self.size, s)
            if self._entry(s) is not None or pos >= END:
                raise ContextError(
                    f"the state is damaged: position {pos} or sequence {written} is invalid; save "
                    "it again"
                )
            self._read(io, s, pos, partial)

    def _make_room(self, seq_id: int, partial: bool) -> None:
        """Empty a sequence that a loaded state replaces."""
        self._forget(seq_id)

    @abstractmethod
    def _write(self, io: StateWriter, seq_id: int, partial: bool) -> None:
        """Write the state of a sequence."""

    @abstractmethod
    def _read(self, io: StateReader, seq_id: int, pos: int, partial: bool) -> None:
        """Read the state of a sequence, which is empty."""


class StateWalk(UBatchCursor):
    """A batch's ubatches in a memory of states.

    keeps  description of the states, for messages
    """

    keeps: ClassVar[str]
    mem: StateMemory

    def __init__(self, mem: StateMemory, ubatches: list[UBatch]) -> None:
        self.mem = mem
        super().__init__(ubatches)

    def apply(self) -> None:
        self.mem.apply_ubatch(self.get_ubatch())

    def follow(self, ubatch: UBatch) -> None:
        self.mem.apply_ubatch(ubatch)
