"""Batch after reading, completion and checks (llama_batch_allocr::init)."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from llama_py.batch.batch import (
    END,
    F32,
    I32,
    N_MARKS,
    NO_TOKEN,
    Batch,
    Index,
    SeqIds,
    Wanted,
    index_sequences,
)


class Positions(Protocol):
    """Interface of a memory that a batch is checked against."""

    def seq_pos_min(self, seq_id: int) -> int: ...

    def seq_pos_max(self, seq_id: int) -> int: ...


def _ints(what: str, values: Any, low: int, high: int) -> npt.NDArray[Any]:
    """Return values as an integer array in [low, high); ContextError names the first bad one."""
    if isinstance(values, (str, bytes, bytearray)):
        raise ContextError(f"{what} must be token ids, got a string; use model.tokenize(text)")
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise ContextError(f"{what} must be integers, got {array.dtype}")
    if array.size and not (low <= array.min() and array.max() < high):
        i = int(np.flatnonzero((array < low) | (array >= high))[0])
        raise ContextError(f"{what}[{i}] must be in [{low}, {high}), got {array.flat[i]}")
    return array.astype(np.int32)


def _floats(what: str, values: Any) -> F32:
    """Return values as float32; ContextError for NaN or infinity, which would spread."""
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(array).all():
        raise ContextError(f"{what} must be finite float32 numbers, got NaN or infinity")
    return array


class CheckedBatch:
    """A batch as arrays, after all checks.

    Raises ContextError for an empty batch, a token or sequence id out of range, and positions that
    do not continue the sequences in `memory`.
    """

    def __init__(
        self,
        batch: Batch,
        *,
        n_vocab: int,
        n_embd: int,
        n_seq_max: int,
        n_pos: int = 1,
        memory: Positions | None = None,
        outputs: Wanted = "last",
        output_all: bool = False,
    ) -> None:
        """Read and check a batch.

        outputs     tokens that are outputs, unless the batch specifies them
        output_all  all tokens are outputs, regardless of the batch"""
        self.n_pos = n_pos
        self._read_input(batch, n_vocab, n_embd)
        self._read_seq_ids(batch, n_seq_max)
        self._read_pos(batch, memory)
        self._check_pos(memory)
        self._check_coupled(memory)
        self._read_outputs(batch, "all" if output_all else outputs, output_all)
        self._read_marks(batch)
        self.split_reset()

    def split_reset(self) -> None:
        """Mark all tokens as not yet in a ubatch."""

    def by_seq(self) -> dict[int, Index]:
        """Return each sequence with the indices of its tokens."""
        return self._of_seq

    def find_tokens(self, ids: SeqIds) -> npt.NDArray[np.intp]:
        """Return indices of the tokens of exactly this sequence set."""
        found = self._of_set.get(ids)
        if found is None:
            if len(self._sets) == 1:
                found = np.arange(self.n_tokens, dtype=np.intp)
            else:
                found = np.array([i for i, x in enumerate(self.seq_id) if x == ids], np.intp)
            self._of_set[ids] = found
        return found

    def _read_input(self, batch: Batch, n_vocab: int, n_embd: int) -> None:
        tokens, embd = batch.tokens, batch.embd
        if tokens is None and embd is None:
            raise ContextError("a batch needs tokens or embd, got neither")
        lowest = NO_TOKEN if batch.is_mixed else 0
        self.token = None
        if tokens is not None:
            self.token = _ints("tokens", tokens, lowest, n_vocab).reshape(-1)
        self.embd = None if embd is None else _floats("embd", embd)
        self.is_embd: npt.NDArray[np.bool_] | None = None
        if batch.is_mixed:
            self._place_rows(n_embd)
        if self.token is not None:
            self.n_tokens = self.token.size
        else:
            self.n_tokens = 0 if self.embd is None else len(self.embd)
        if self.n_tokens == 0:
            raise ContextError("the batch is empty; pass at least one token")
        if self.embd is not None and self.embd.shape != (self.n_tokens, n_embd):
            shape = self.embd.shape
            raise ContextError(
                f"embd must have shape [{self.n_tokens}, {n_embd}], got {list(shape)}"
            )

    def _place_rows(self, n_embd: int) -> None:
        """Give each token of a mixed batch a row of 0, so that `embd` has a row per entry. A batch
        without tokens becomes a batch of embeddings."""
        assert self.token is not None and self.embd is not None
        is_embd = self.token == NO_TOKEN
        n = int(np.count_nonzero(is_embd))
        if self.embd.shape != (n, n_embd):
            raise ContextError(
                f"embd must have shape [{n}, {n_embd}], a row for each token {NO_TOKEN}, got "
                f"{list(self.embd.shape)}"
            )
        if n == self.token.size:
            self.token = None
            return
        rows = np.zeros((self.token.size, n_embd), np.float32)
        rows[is_embd] = self.embd
        self.embd, self.is_embd = rows, is_embd

    def _check_length(self, what: str, n: int) -> None:
        if n != self.n_tokens:
            raise ContextError(f"{what} must have {self.n_tokens} entries, one per token, got {n}")

    def _read_seq_ids(self, batch: Batch, n_seq_max: int) -> None:
        if batch.seq_ids is None:
            self.seq_id: list[SeqIds] = [(0,)] * self.n_tokens
        else:
            try:
                self.seq_id = [tuple(sorted(set(ids))) for ids in batch.seq_ids]
            except TypeError:
                raise ContextError(
                    "seq_ids must have the sequences of each token, such as [(0,), (0, 1)]; got "
                    f"{str(batch.seq_ids)[:60]}"
                ) from None
            self._check_length("seq_ids", len(self.seq_id))
        for ids in set(self.seq_id):
            if not ids:
                raise ContextError(
                    f"seq_ids[{self.seq_id.index(ids)}] is empty; give each token at least one "
                    "sequence"
                )
            if not all(isinstance(s, int | np.integer) for s in ids):
                raise ContextError(f"seq_ids[{self.seq_id.index(ids)}] must be integers, got {ids}")
            if ids[0] < 0 or ids[-1] >= n_seq_max:
                bad = ids[0] if ids[0] < 0 else ids[-1]
                raise ContextError(
                    f"seq_ids[{self.seq_id.index(ids)}]: sequence must be in [0, {n_seq_max}), "
                    f"got {bad}; use a larger n_seq_max"
                )
        self._sort_sets()

    def _sort_sets(self) -> None:
        self._sets = {ids: sum(1 << s for s in ids) for ids in set(self.seq_id)}
        self._of_set: dict[SeqIds, npt.NDArray[np.intp]] = {}
        if len(self._sets) == 1:
            self._of_seq: dict[int, Index] = dict.fromkeys(self.seq_id[0], slice(0, self.n_tokens))
        else:
            self._of_seq = index_sequences(self.seq_id)

    def give_to_first(self) -> None:
        """Assign all tokens, which belong to the same sequences, to the first one only."""
        self.seq_id, self.has_cpl = [self.seq_id[0][:1]] * self.n_tokens, False
        self._sort_sets()

    def _read_pos(self, batch: Batch, memory: Positions | None) -> None:
        if batch.pos is None:
            following: dict[int, int] = {}
            pos = np.empty(self.n_tokens, np.int32)
            runs = groupby(self.seq_id)
            i = 0
            for ids, run in runs:
                n = len([*run])
                s = ids[0]
                first = following.get(s, 0 if memory is None else memory.seq_pos_max(s) + 1)
                if first + n > END:
                    raise ContextError(
                        f"sequence {s} is at position {first}: {n} more do not fit below {END};"
                        " remove positions with seq_rm"
                    )
                pos[i : i + n] = np.arange(first, first + n)
                following[s] = first + n
                i += n
        else:
            pos = _ints("pos", batch.pos, 0, END)
            self._check_length("pos", pos.shape[-1] if pos.ndim else 0)
        rows = pos.reshape(-1, self.n_tokens)
        only_tokens = self.token is not None and self.is_embd is None
        if len(rows) not in (1, self.n_pos) or (len(rows) > 1 and only_tokens):
            raise ContextError(f"pos must have shape [{self.n_tokens}], got {list(pos.shape)}")
        self.pos = np.repeat(rows, self.n_pos, 0) if len(rows) < self.n_pos else rows
        if len(rows) > 1 and self.is_embd is not None:
            self.pos = np.where(self.is_embd, rows, rows[:1])

    def _check_pos(self, memory: Positions | None) -> None:
        for s, where in self._of_seq.items():
            pos = self.pos[0, where]
            last = -1 if memory is None else memory.seq_pos_max(s)
            is_embd = self._rows_of_embd(where)
            self._check_start(s, int(pos[0]), last, bool(is_embd[0]))
            if pos.size > 1:
                steps = pos[1:] - pos[:-1]
                if steps.min() < 0:
                    raise ContextError(
                        f"positions of sequence {s} must not decrease, got {_format_values(pos)}"
                    )
                self._check_changes(s, steps, is_embd)
                if steps.max() > 1 and self.n_pos == 1:
                    raise ContextError(
                        f"positions of sequence {s} must not have a gap, got {_format_values(pos)}"
                    )

    def _rows_of_embd(self, where: Index) -> npt.NDArray[np.bool_]:
        """Return a mask of these entries: True for rows of embd in place of tokens."""
        if self.is_embd is not None:
            return self.is_embd[where]
        return np.full(self.pos[0, where].size, self.token is None)

    def _check_changes(
        self, s: int, steps: npt.NDArray[Any], is_embd: npt.NDArray[np.bool_]
    ) -> None:
        """Raise ContextError if a token and a row of embd have the same position, or two tokens of
        a mixed batch."""
        if self.is_embd is None or self.n_pos == 1:
            return
        if (steps[~(is_embd[1:] & is_embd[:-1])] < 1).any():
            raise ContextError(
                f"positions of sequence {s} must increase before and after each token of a mixed "
                "batch; only rows of embd next to each other may have the same position"
            )

    def _check_start(self, s: int, first: int, last: int, is_embd: bool) -> None:
        if last < 0:
            return
        if self.n_pos == 1:
            ok, rule = first == last + 1, f"position {last + 1}"
        elif not is_embd:
            ok, rule = first > last, f"a position above {last}"
        else:
            ok, rule = first >= last, f"position {last} or a later one"
        if not ok:
            raise ContextError(
                f"sequence {s} ends at position {last} in memory, so this batch must start it at "
                f"{rule}, got {first}; remove positions with seq_rm, or omit pos"
            )

    def _check_coupled(self, memory: Positions | None) -> None:
        """Raise ContextError if sequences that share tokens of this batch have diverged before."""
        self.has_cpl = any(len(ids) > 1 for ids in self._sets)
        if memory is None:
            return
        for a, b in ((ids[0], s) for ids in self._sets for s in ids[1:]):
            ends = [(memory.seq_pos_min(s), memory.seq_pos_max(s)) for s in (a, b)]
            if ends[0] != ends[1]:
                raise ContextError(
                    f"sequences {a} and {b} share tokens of this batch but have diverged: their "
                    f"positions are {list(ends[0])} and {list(ends[1])}; decode the tokens once "
                    "per sequence"
                )

    def _read_outputs(self, batch: Batch, outputs: Wanted, output_all: bool) -> None:
        if batch.outputs is not None and not output_all:
            try:
                self.output = np.asarray(batch.outputs, np.bool_)
            except ValueError:  # rows of several lengths
                raise ContextError(
                    f"outputs must have shape [{self.n_tokens}], got rows of different lengths"
                ) from None
            if self.output.ndim != 1:
                shape = list(self.output.shape)
                raise ContextError(f"outputs must have shape [{self.n_tokens}], got {shape}")
            self._check_length("outputs", len(self.output))
        else:
            self.output = np.full(self.n_tokens, outputs == "all")
            self.output[-1] = outputs != "none"
        self.n_outputs = int(np.count_nonzero(self.output))

    def _read_marks(self, batch: Batch) -> None:
        self.marks: I32 | None = None
        if batch.marks is not None:
            self.marks = _ints("marks", batch.marks, 0, N_MARKS).reshape(-1)
            self._check_length("marks", self.marks.size)


def _format_values(values: I32) -> str:
    shown = ", ".join(map(str, values[:8]))
    return f"[{shown}{', ...' if values.size > 8 else ''}]"
