"""Methods of splitting a batch into ubatches (llama-batch.cpp:llama_batch_allocr)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, takewhile
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ContextError
from llama_py.batch.batch import F32, I32, Batch, Index, SeqIds, UBatch, Wanted
from llama_py.batch.checked_batch import CheckedBatch, Positions
from llama_py.hparams.cparams import CParams

if TYPE_CHECKING:
    from llama_py.hparams import HParams


class BatchSplitter(CheckedBatch):
    """A checked batch, and its remaining tokens.

    streams  by sequence, its separate part of the KV cache
    apart  each ubatch of `split_equal` has tokens of one sequence set only
    by_turns  each ubatch has tokens of one sequence set only
    """

    streams: Sequence[int] = ()
    apart = by_turns = False
    _kinds: npt.NDArray[np.intp] | None = None

    def set_kinds(self, kinds: npt.NDArray[np.intp] | None) -> None:
        """Set the kind of each token [n_tokens]; ubatches do not mix kinds. None: no kinds."""
        self._kinds = kinds

    def split_reset(self) -> None:
        """Start cutting from the beginning again."""
        self.n_used = 0
        self._used = bytearray(self.n_tokens)
        self._taken = dict.fromkeys(self._sets, 0)

    def split_simple(self, n_ubatch: int) -> UBatch | None:
        """Return the next n_ubatch tokens in batch order, regardless of their sequences."""
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
        """Return the first free token and others of its kind, each sequence in order."""
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
        """Return the next tokens of one sequence set."""
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
        """Return equally many tokens of several sequence sets, sequence-major.

        sequential   only sets of sequences with consecutive ascending streams
        n_keep_tail  number of last tokens of a sequence that are never split
        """
        if sequential and self.has_cpl:
            raise ContextError(
                "tokens of several sequences need kv_unified; create the context with "
                "kv_unified=True"
            )
        if n_keep_tail > n_ubatch:
            raise ContextError(
                f"n_ubatch must be at least {n_keep_tail}, got {n_ubatch}: rollback needs "
                "n_rs_seq + 1 tokens in one ubatch; use a larger n_ubatch or a smaller n_rs_seq"
            )
        sets = self._open_sets(n_ubatch, sequential)
        if not sets:
            return None
        left = [len(self._rest(ids)) for ids in sets]
        length = min(min(left), max(1, n_ubatch // len(sets)))
        if n_keep_tail:
            length, sets = _keep_tails(length, left, sets, n_ubatch, n_keep_tail)
        return self._take(sets, length)

    def split_slots(self, n_ubatch: int, sequential: bool, n_tail: int = 0) -> UBatch | None:
        """Return tokens of one sequence set, or one token of each of several
        (ik_llama.cpp llama-delta-net.cpp).

        sequential  see `split_equal`
        n_tail      number of last tokens of a sequence in a separate ubatch
        """
        sets = self._open_sets(n_ubatch, sequential)
        if not sets:
            return None
        one_left = list(takewhile(lambda ids: len(self._rest(ids)) == 1, sets))
        if one_left:
            return self._take(one_left, 1)
        left = len(self._rest(sets[0]))
        length = left if left <= n_tail else left - n_tail
        return self._take(sets[:1], min(length, n_ubatch))

    def _take(self, sets: list[SeqIds], length: int) -> UBatch:
        """Take the next `length` tokens of each set."""
        parts = []
        for ids in sets:
            start = self._taken[ids]
            parts.append(self.find_tokens(ids)[start : start + length])
            self._taken[ids] += length
        where = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._add(where, len(sets), True)

    def _open_sets(self, n_ubatch: int, sequential: bool) -> list[SeqIds]:
        """Return disjoint sequence sets with tokens left, in batch order, at most n_ubatch."""
        chosen: list[SeqIds] = []
        taken = kind = 0
        for ids, _ in groupby(self.seq_id):
            if self._taken[ids] == len(self.find_tokens(ids)) or taken & self._sets[ids]:
                continue
            if sequential and chosen and self._stream(ids) != self._stream(chosen[-1]) + 1:
                continue
            if self._kinds is not None and chosen and self._next_kind(ids) != kind:
                taken |= self._sets[ids]  # the order within these sequences must not change
                continue
            kind = self._next_kind(ids)
            chosen.append(ids)
            taken |= self._sets[ids]
            if len(chosen) == n_ubatch or self.apart:
                break
        return chosen

    def _stream(self, ids: SeqIds) -> int:
        return self.streams[ids[0]] if self.streams else ids[0]

    def _next_kind(self, ids: SeqIds) -> int:
        i = self.find_tokens(ids)[self._taken[ids]]
        return 0 if self._kinds is None else int(self._kinds[i])

    def _rest(self, ids: SeqIds) -> npt.NDArray[np.intp]:
        """Return the next tokens of a sequence set that are of one kind."""
        rest = self.find_tokens(ids)[self._taken[ids] :]
        if self._kinds is None:
            return rest
        other = self._kinds[rest] != self._kinds[rest[0]]
        return rest[: int(other.argmax())] if other.any() else rest

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
        token, embd, is_embd = self._take_inputs(where)
        return UBatch(
            equal_seqs,
            n,
            n // n_seqs,
            n_seqs,
            self.n_pos,
            token,
            embd,
            self.pos[:, where].reshape(-1),
            seq_id,
            unique,
            self.output[where],
            idxs,
            0 if self._kinds is None else int(self._kinds[idxs[0]]),
            None if self.marks is None else self.marks[where],
            [self._stream(seq_id[i]) for i in range(0, n, n // n_seqs)] if self.streams else (),
            is_embd,
        )

    def _take_inputs(
        self, where: Index
    ) -> tuple[I32 | None, F32 | None, npt.NDArray[np.bool_] | None]:
        """Return tokens, embd and is_embd of a ubatch. Entries of one kind are not mixed."""
        token = None if self.token is None else self.token[where]
        embd = None if self.embd is None else self.embd[where]
        if self.is_embd is None:
            return token, embd, None
        is_embd = self.is_embd[where]
        if is_embd.all():
            return None, embd, None
        return (token, embd, is_embd) if is_embd.any() else (token, None, None)


def _keep_tails(
    length: int, left: list[int], sets: list[SeqIds], n_ubatch: int, n_tail: int
) -> tuple[int, list[SeqIds]]:
    """Return the longest prefix of sets that end here or keep at least n_tail tokens."""
    keep = 0
    for n in left:
        if 0 < n - length < n_tail:
            break
        keep += 1
    if keep:
        return length, sets[:keep]
    # no set fits: use the first alone, to its end if possible
    return (left[0] if left[0] <= n_ubatch else left[0] - n_tail), sets[:1]


def create_splitter(
    tokens: Sequence[int] | I32 | Batch,
    wanted: Wanted,
    hp: HParams,
    cparams: CParams,
    memory: Positions,
    *,
    reads: bool,
    hidden: bool,
) -> BatchSplitter:
    """Check the input of `Context.decode` and return its splitter.

    reads   an encoder processes it and returns a result per token
    hidden  `embd` is required: the hidden states before the tokens

    Raises ContextError for a batch that is malformed, or is too large to be computed in one
    piece if it must be.
    """
    batch = tokens if isinstance(tokens, Batch) else Batch(tokens)
    if wanted not in ("last", "all", "none"):
        raise ContextError(f'logits must be "last", "all" or "none", got {wanted!r}')
    if hidden and batch.embd is None:
        raise ContextError(
            "a NextN layer needs the hidden state before each token; pass a Batch whose embd has "
            "rows of h_nextn"
        )
    if batch.is_mixed:
        _check_mixed(hp, hidden)
    width = hp.n_embd_inp_enc if reads else hp.n_embd_inp
    n_embd = width if batch.tokens is None or batch.is_mixed else hp.n_embd_hidden
    splitter = BatchSplitter(
        batch,
        n_vocab=hp.n_vocab,
        n_embd=n_embd,
        n_seq_max=cparams.n_seq_max,
        n_pos=hp.n_pos_per_embd,
        memory=memory,
        outputs=wanted,
        output_all=cparams.embeddings or reads,
    )
    splitter.by_turns = hp.decides
    if hp.decides or splitter.marks is not None:
        _check_marks(splitter, hp, cparams)
    pooled = cparams.embeddings and cparams.pooling not in ("none", "last")
    if (pooled or not cparams.causal_attn) and splitter.n_tokens > cparams.n_ubatch:
        what = f"pooling {cparams.pooling}" if pooled else "a model with bidirectional attention"
        raise ContextError(
            f"{what} needs the batch in one ubatch, but it has {splitter.n_tokens} tokens and "
            f"n_ubatch = {cparams.n_ubatch}; use a larger n_ubatch"
        )
    return splitter


def _check_mixed(hp: HParams, hidden: bool) -> None:
    """Raise ContextError for a mixed batch that the graph cannot process."""
    if hidden:
        raise ContextError(
            "a NextN layer needs a hidden state before each token, so a batch cannot mix tokens "
            "and embeddings; pass a token id for each row of embd"
        )
    if not hp.mixes_embd:
        raise ContextError(
            f"architecture {hp.arch!r} processes tokens and embeddings in different ways, so a "
            "batch cannot mix them; decode them in separate batches"
        )


def _check_marks(splitter: BatchSplitter, hp: HParams, cparams: CParams) -> None:
    """Raise ContextError for marks without effect, and for a sequence in several ubatches."""
    if splitter.marks is not None and not hp.decides:
        raise ContextError(
            f"architecture {hp.arch!r} does not score marked options; omit marks from the batch"
        )
    if splitter.marks is not None and not cparams.embeddings:
        raise ContextError(
            "scores of marked options are embeddings; create the context with embeddings=True, or "
            "use ctx.encode"
        )
    if splitter.marks is None and hp.cached:
        return
    n = max(np.arange(splitter.n_tokens)[tokens].size for tokens in splitter.by_seq().values())
    if n > cparams.n_ubatch:
        raise ContextError(
            f"marked options need each sequence in one ubatch, but one has {n} tokens and "
            f"n_ubatch = {cparams.n_ubatch}; use a larger n_ubatch"
        )
