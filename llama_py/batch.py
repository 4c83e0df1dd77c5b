"""What is decoded: a batch, checked and split into ubatches (llama-batch.cpp)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
Index = slice | npt.NDArray[np.intp]
SeqIds = tuple[int, ...]
Wanted = Literal["last", "all", "none"]


@dataclass(slots=True)
class Batch:
    """Tokens, or rows of embeddings, to decode (llama_batch).

    tokens   ids [n_tokens]; None when only `embd` is given
    embd     F32 [n_tokens, n_embd]: input embeddings, or (MTP) hidden states beside tokens
    pos      position of each token; None: each sequence goes on where it stands.
             M-RoPE embeddings may give [n_pos, n_tokens]
    seq_ids  the sequences each token belongs to; None: sequence 0
    outputs  whether each token's logits are wanted; None: as decode is told
    """

    tokens: Sequence[int] | I32 | None = None
    embd: F32 | None = None
    pos: Sequence[int] | I32 | None = None
    seq_ids: Sequence[Iterable[int]] | None = None
    outputs: Sequence[bool] | npt.NDArray[np.bool_] | None = None


@dataclass(slots=True)
class UBatch:
    """A part of a batch that one graph computes (llama_ubatch).

    With `equal_seqs` the tokens are sequence-major: n_tokens = n_seq_tokens * n_seqs.

    token       I32 [n_tokens] or None;  embd  F32 [n_tokens, n_embd] or None
    pos         I32 [n_pos * n_tokens], section-major
    seq_id      sequences of each token, ascending;  seq_id_unq  all of them, ascending
    output      bool [n_tokens]
    batch_idxs  where in the batch each token came from
    kind        that of its tokens, see BatchSplitter.set_kinds
    """

    equal_seqs: bool
    n_tokens: int
    n_seq_tokens: int
    n_seqs: int
    n_pos: int
    token: I32 | None
    embd: F32 | None
    pos: I32
    seq_id: list[SeqIds]
    seq_id_unq: list[int]
    output: npt.NDArray[np.bool_]
    batch_idxs: npt.NDArray[np.intp]
    kind: int = 0
    _by_seq: list[tuple[int, Index]] | None = field(default=None, repr=False)

    @property
    def n_seqs_unq(self) -> int:
        return len(self.seq_id_unq)

    @property
    def n_seq_id(self) -> list[int]:
        return [len(s) for s in self.seq_id]

    def by_seq(self) -> list[tuple[int, Index]]:
        """Each sequence with the indices of its tokens."""
        if self._by_seq is None:
            if len(self.seq_id_unq) == 1:
                self._by_seq = [(self.seq_id_unq[0], slice(0, self.n_tokens))]
            else:
                self._by_seq = list(_positions_of(self.seq_id).items())
        return self._by_seq


def ubatch_reserve(n_seq_tokens: int, n_seqs: int, n_pos: int = 1) -> UBatch:
    """A well-formed ubatch of token 0, for graphs that are only measured."""
    n = n_seq_tokens * n_seqs
    return UBatch(
        True, n, n_seq_tokens, n_seqs, n_pos, np.zeros(n, np.int32), None,
        np.zeros(n * n_pos, np.int32), [(s,) for s in range(n_seqs) for _ in range(n_seq_tokens)],
        list(range(n_seqs)), np.zeros(n, np.bool_), np.arange(n, dtype=np.intp),
    )  # fmt: skip


class Positions(Protocol):
    """What a batch has to know of a memory."""

    def seq_pos_min(self, seq_id: int) -> int: ...

    def seq_pos_max(self, seq_id: int) -> int: ...


def _positions_of(seq_id: list[SeqIds]) -> dict[int, Index]:
    found: dict[int, list[int]] = {}
    for i, ids in enumerate(seq_id):
        for s in ids:
            found.setdefault(s, []).append(i)
    return {s: np.array(i, np.intp) for s, i in sorted(found.items())}


def _ints(what: str, values: Any, low: int, high: int) -> npt.NDArray[Any]:
    """values as an integer array, all in [low, high); ContextError names the first that is not."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise ContextError(f"{what} must be integers, got {array.dtype}")
    bad = np.flatnonzero((array < low) | (array >= high))
    if bad.size:
        i = int(bad[0])
        raise ContextError(f"{what}[{i}] = {array.flat[i]} is not in [{low}, {high})")
    return array.astype(np.int32)


class BatchSplitter:
    """A checked batch, and the ways to cut it into ubatches (llama_batch_allocr).

    Raises ContextError for an empty batch, a token or sequence id out of range, and positions that
    do not go on where `memory` stands.
    """

    def __init__(
        self, batch: Batch, *, n_vocab: int, n_embd: int, n_seq_max: int, n_pos: int = 1,
        memory: Positions | None = None, outputs: Wanted = "last", output_all: bool = False,
        hidden: bool = False,
    ) -> None:  # fmt: skip
        """outputs     which tokens are outputs if the batch does not say
        output_all  all are, whatever the batch says
        hidden      `embd` must be there: the hidden states before the tokens
        """
        self.n_pos = n_pos
        if hidden and batch.embd is None:
            raise ContextError(
                "a NextN layer needs the hidden state before each token; give a Batch whose embd"
                " are rows of h_nextn"
            )
        self._read_input(batch, n_vocab, n_embd)
        self._read_seq_ids(batch, n_seq_max)
        self._read_pos(batch, memory)
        self._check_pos(memory)
        self._check_coupled(memory)
        self._read_outputs(batch, "all" if output_all else outputs, output_all)
        self._kinds: npt.NDArray[np.intp] | None = None
        self.split_reset()

    def by_seq(self) -> dict[int, Index]:
        """Each sequence with the indices of its tokens."""
        return self._of_seq

    def set_kinds(self, kinds: npt.NDArray[np.intp] | None) -> None:
        """No ubatch is to have tokens of two kinds. [n_tokens]; None if there is one kind only"""
        self._kinds = kinds

    def _read_input(self, batch: Batch, n_vocab: int, n_embd: int) -> None:
        tokens, embd = batch.tokens, batch.embd
        if tokens is None and embd is None:
            raise ContextError("a batch needs tokens or embd; got neither")
        self.token = None if tokens is None else _ints("tokens", tokens, 0, n_vocab).reshape(-1)
        self.embd = None if embd is None else np.ascontiguousarray(embd, np.float32)
        if self.token is not None:
            self.n_tokens = self.token.size
        else:
            self.n_tokens = 0 if self.embd is None else len(self.embd)
        if self.n_tokens == 0:
            raise ContextError("the batch is empty: n_tokens = 0")
        if self.embd is not None and self.embd.shape != (self.n_tokens, n_embd):
            shape = self.embd.shape
            raise ContextError(f"embd must be [{self.n_tokens}, {n_embd}]; got {list(shape)}")

    def _check_length(self, what: str, n: int) -> None:
        if n != self.n_tokens:
            raise ContextError(f"{what} has {n} entries for {self.n_tokens} tokens")

    def _read_seq_ids(self, batch: Batch, n_seq_max: int) -> None:
        if batch.seq_ids is None:
            self.seq_id: list[SeqIds] = [(0,)] * self.n_tokens
        else:
            self._check_length("seq_ids", len(batch.seq_ids))
            self.seq_id = [tuple(sorted(set(ids))) for ids in batch.seq_ids]
        self._sets = {ids: sum(1 << s for s in ids if s >= 0) for ids in set(self.seq_id)}
        self._of_set: dict[SeqIds, npt.NDArray[np.intp]] = {}
        for ids in self._sets:
            if not ids:
                raise ContextError(f"seq_ids[{self.seq_id.index(ids)}] is empty")
            if ids[0] < 0 or ids[-1] >= n_seq_max:
                bad = ids[0] if ids[0] < 0 else ids[-1]
                raise ContextError(
                    f"seq_ids[{self.seq_id.index(ids)}]: sequence {bad} is not in [0, {n_seq_max});"
                    " use a larger n_seq_max"
                )
        if len(self._sets) == 1:
            self._of_seq: dict[int, Index] = dict.fromkeys(self.seq_id[0], slice(0, self.n_tokens))
        else:
            self._of_seq = _positions_of(self.seq_id)

    def _read_pos(self, batch: Batch, memory: Positions | None) -> None:
        if batch.pos is None:
            following: dict[int, int] = {}
            pos = np.empty(self.n_tokens, np.int32)
            runs = groupby(self.seq_id)
            i = 0
            for ids, run in runs:
                n = sum(1 for _ in run)
                s = ids[0]
                first = following.get(s, 0 if memory is None else memory.seq_pos_max(s) + 1)
                pos[i : i + n] = np.arange(first, first + n)
                following[s] = first + n
                i += n
        else:
            pos = _ints("pos", batch.pos, 0, 2**31 - 1)
            self._check_length("pos", pos.shape[-1] if pos.ndim else 0)
        rows = pos.reshape(-1, self.n_tokens)
        if len(rows) not in (1, self.n_pos) or (len(rows) > 1 and self.token is not None):
            raise ContextError(f"pos must be [{self.n_tokens}]; got {list(pos.shape)}")
        self.pos = np.repeat(rows, self.n_pos, 0) if len(rows) < self.n_pos else rows

    def _check_pos(self, memory: Positions | None) -> None:
        for s, where in self._of_seq.items():
            pos = self.pos[0, where]
            last = -1 if memory is None else memory.seq_pos_max(s)
            self._check_start(s, int(pos[0]), last)
            if pos.size > 1:
                steps = np.diff(pos)
                if steps.min() < 0:
                    raise ContextError(f"positions of sequence {s} decrease: {_some(pos)}")
                if steps.max() > 1 and self.n_pos == 1:
                    raise ContextError(f"positions of sequence {s} have a gap: {_some(pos)}")

    def _check_start(self, s: int, first: int, last: int) -> None:
        if last < 0:
            return
        if self.n_pos == 1:
            ok, rule = first == last + 1, f"position {last + 1}"
        elif self.token is not None:
            ok, rule = first > last, f"a position above {last}"
        else:
            ok, rule = first >= last, f"a position from {last} on"
        if not ok:
            raise ContextError(
                f"sequence {s} ends at position {last} in memory, so this batch must start it at"
                f" {rule}; got {first} (remove positions with seq_rm, or give no pos)"
            )

    def _check_coupled(self, memory: Positions | None) -> None:
        """Sequences that share tokens of this batch must have been equal so far."""
        self.has_cpl = any(len(ids) > 1 for ids in self._sets)
        if memory is None:
            return
        for a, b in ((ids[0], s) for ids in self._sets for s in ids[1:]):
            ends = [(memory.seq_pos_min(s), memory.seq_pos_max(s)) for s in (a, b)]
            if ends[0] != ends[1]:
                raise ContextError(
                    f"sequences {a} and {b} share tokens of this batch but have diverged:"
                    f" they hold positions {list(ends[0])} and {list(ends[1])}"
                )

    def _read_outputs(self, batch: Batch, outputs: Wanted, output_all: bool) -> None:
        if batch.outputs is not None and not output_all:
            self._check_length("outputs", len(batch.outputs))
            self.output = np.asarray(batch.outputs, np.bool_)
        else:
            self.output = np.full(self.n_tokens, outputs == "all")
            self.output[-1] = outputs != "none"
        self.n_outputs = int(np.count_nonzero(self.output))

    def split_reset(self) -> None:
        """Start cutting from the beginning again."""
        self.n_used = 0
        self._used = bytearray(self.n_tokens)
        self._taken = dict.fromkeys(self._sets, 0)

    def split_simple(self, n_ubatch: int) -> UBatch | None:
        """The next n_ubatch tokens in batch order, whatever their sequences."""
        first = self._used.find(0)
        if first < 0:
            return None
        if self._kinds is not None:
            picked = self._of_one_kind(first, n_ubatch)
            return self._add(np.array(picked, np.intp), len(picked), False)
        end = min(first + n_ubatch, self.n_tokens)
        self._used[first:end] = b"\1" * (end - first)
        return self._add(slice(first, end), end - first, False)

    def _of_one_kind(self, first: int, n_ubatch: int) -> list[int]:
        """The first free token and others of its kind, each sequence in order."""
        assert self._kinds is not None
        picked, passed = list[int](), 0
        for i in range(first, self.n_tokens):
            one = self._sets[self.seq_id[i]]
            if self._used[i]:
                continue
            if self._kinds[i] != self._kinds[first] or passed & one:
                passed |= one
            elif len(picked) < n_ubatch:
                self._used[i] = 1
                picked.append(i)
        return picked

    def split_seq(self, n_ubatch: int) -> UBatch | None:
        """The next tokens of one sequence set."""
        first = self._used.find(0)
        if first < 0:
            return None
        current = self._sets[self.seq_id[first]]
        picked: list[int] = []
        for i in range(first, self.n_tokens):
            one = self._sets[self.seq_id[i]]
            if self._kinds is not None and self._kinds[i] != self._kinds[first] and current & one:
                break
            if len(picked) < n_ubatch and not self._used[i] and current & one == one:
                current = one
                self._used[i] = 1
                picked.append(i)
        return self._add(np.array(picked, np.intp), 1, True)

    def split_equal(self, n_ubatch: int, sequential: bool, n_keep_tail: int = 0) -> UBatch | None:
        """The same number of tokens of each of several sequence sets, sequence-major.

        sequential   only sets of consecutive ascending sequence ids (each has its own KV stream)
        n_keep_tail  the last so many tokens of a sequence are never cut apart
        """
        if sequential and self.has_cpl:
            raise ContextError(
                "tokens that belong to several sequences need kv_unified=True in this context"
            )
        if n_keep_tail > n_ubatch:
            raise ContextError(
                f"n_ubatch = {n_ubatch} must be at least {n_keep_tail}: rollback needs so many"
                " tokens in one ubatch (n_rs_seq + 1); use a larger n_ubatch or a smaller n_rs_seq"
            )
        sets = self._open_sets(n_ubatch, sequential)
        if not sets:
            return None
        left = [len(self._rest(ids)) for ids in sets]
        length = min(min(left), max(1, n_ubatch // len(sets)))
        if n_keep_tail:
            length, sets = _keep_tails(length, left, sets, n_ubatch, n_keep_tail)
        parts = []
        for ids in sets:
            start = self._taken[ids]
            parts.append(self._tokens_of(ids)[start : start + length])
            self._taken[ids] += length
        where = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._add(where, len(sets), True)

    def _open_sets(self, n_ubatch: int, sequential: bool) -> list[SeqIds]:
        """Sequence sets with tokens left that do not overlap, in batch order, at most n_ubatch."""
        chosen: list[SeqIds] = []
        taken = kind = 0
        for ids, _ in groupby(self.seq_id):
            if self._taken[ids] == len(self._tokens_of(ids)) or taken & self._sets[ids]:
                continue
            if sequential and chosen and ids[0] != chosen[-1][0] + 1:
                continue
            if self._kinds is not None and chosen and self._next_kind(ids) != kind:
                taken |= self._sets[ids]  # nothing of these sequences may come before it
                continue
            kind = self._next_kind(ids)
            chosen.append(ids)
            taken |= self._sets[ids]
            if len(chosen) == n_ubatch:
                break
        return chosen

    def _next_kind(self, ids: SeqIds) -> int:
        i = self._tokens_of(ids)[self._taken[ids]]
        return 0 if self._kinds is None else int(self._kinds[i])

    def _rest(self, ids: SeqIds) -> npt.NDArray[np.intp]:
        """The next tokens of a sequence set, as far as they are of one kind."""
        rest = self._tokens_of(ids)[self._taken[ids] :]
        if self._kinds is None:
            return rest
        other = self._kinds[rest] != self._kinds[rest[0]]
        return rest[: int(other.argmax())] if other.any() else rest

    def _tokens_of(self, ids: SeqIds) -> npt.NDArray[np.intp]:
        """Indices of the tokens of exactly this sequence set."""
        found = self._of_set.get(ids)
        if found is None:
            if len(self._sets) == 1:
                found = np.arange(self.n_tokens, dtype=np.intp)
            else:
                found = np.array([i for i, x in enumerate(self.seq_id) if x == ids], np.intp)
            self._of_set[ids] = found
        return found

    def _add(self, where: Index, n_seqs: int, equal_seqs: bool) -> UBatch:
        idxs = np.arange(where.start, where.stop) if isinstance(where, slice) else where
        n = idxs.size
        self.n_used += n
        if len(self._sets) == 1:
            seq_id = self.seq_id[:n]
            unique = list(self.seq_id[0])
        else:
            seq_id = [self.seq_id[i] for i in idxs]
            unique = sorted(set(chain.from_iterable(set(seq_id))))
        return UBatch(
            equal_seqs, n, n // n_seqs, n_seqs, self.n_pos,
            None if self.token is None else self.token[where],
            None if self.embd is None else self.embd[where],
            self.pos[:, where].reshape(-1), seq_id, unique, self.output[where], idxs,
            0 if self._kinds is None else int(self._kinds[idxs[0]]),
        )  # fmt: skip


def _keep_tails(
    length: int, left: list[int], sets: list[SeqIds], n_ubatch: int, n_tail: int
) -> tuple[int, list[SeqIds]]:
    """The longest prefix of sets that end here or keep at least n_tail tokens for later."""
    keep = 0
    for n in left:
        if 0 < n - length < n_tail:
            break
        keep += 1
    if keep:
        return length, sets[:keep]
    # none does: the first one goes alone, to its end if it fits
    return (left[0] if left[0] <= n_ubatch else left[0] - n_tail), sets[:1]


def _some(values: I32) -> str:
    shown = ", ".join(map(str, values[:8]))
    return f"[{shown}{', ...' if values.size > 8 else ''}]"
