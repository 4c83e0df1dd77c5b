"""Fast path that decodes the next token of the same sequences, or the same number of further tokens
of one sequence, as when verifying accepted drafts.

The graph is the same, and only the growing parts of memory and inputs are changed: checking,
splitting and placing are skipped. All other batches are decoded normally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from llama_py.batch import END, F32, I32, Batch, UBatch, Wanted
from llama_py.batch.splitter import BatchSplitter
from llama_py.memory import GroupContext


@dataclass(slots=True)
class NextTokenPath:
    """The last batch: one token of each sequence, or several tokens of one, all with logits.

    others  ubatches of the next tokens and of the tokens after them. They alternate, because
            `discard` compares ubatches by identity
    epoch  the context's epoch after that batch: while it is equal, the fast path is valid
    """

    n_vocab: int
    splitter: BatchSplitter
    ubatch: UBatch
    others: tuple[UBatch, UBatch]
    mctx: GroupContext
    epoch: int

    def next(
        self, tokens: Sequence[int] | I32 | Batch, logits: Wanted, seq_id: int
    ) -> UBatch | None:
        """Return a ubatch of the next tokens, or None if they do not qualify or have no cells."""
        last, embd = self.ubatch, None
        if isinstance(tokens, Batch):
            batch, embd = tokens, tokens.embd
            if batch.marks is not None or not self._is_alike(batch, logits):
                return None
            tokens = () if batch.tokens is None else batch.tokens
        elif last.seq_id_unq != [seq_id] or not (logits == "all" or last.n_tokens == 1):
            return None
        if logits == "none" or not self._fits(tokens, embd):
            return None
        rows = None if embd is None else _rows(embd)
        if rows is not None and not np.isfinite(rows).all():
            return None  # invalid; the normal path raises
        ubatch, after = self.others
        self.others = after, ubatch
        assert ubatch.token is not None
        ids, pos, each = ubatch.token.data, ubatch.pos.data, last.n_each
        for i, id in enumerate(tokens):
            ids[i] = id
        for i, p in enumerate(last.pos.tolist()):
            if p + each >= END:
                return None
            pos[i] = p + each
        ubatch.embd = rows
        return ubatch if self.mctx.has_room(ubatch) else None

    def _is_alike(self, batch: Batch, logits: Wanted) -> bool:
        """Return True if a batch has the same sequences in order, at their next positions, and all
        logits."""
        try:
            return self._has_next(batch, logits)
        except TypeError:  # malformed; the normal path reports it
            return False

    def _has_next(self, batch: Batch, logits: Wanted) -> bool:
        last, n = self.ubatch, self.ubatch.n_tokens
        ids, pos, outputs = batch.seq_ids, batch.pos, batch.outputs
        given = [(0,)] if ids is None else [tuple(one) for one in ids]
        if given != last.seq_id:
            return False
        if pos is not None and [*pos] != (last.pos[:n] + last.n_each).tolist():
            return False
        return _is_all(outputs, n, logits)

    def _fits(self, tokens: Sequence[int] | I32, embd: Any) -> bool:
        """Return True if inputs have the same types, and the tokens exist."""
        mine = self.ubatch.embd
        if (embd is None) != (mine is None) or (mine is not None and np.shape(embd) != mine.shape):
            return False
        if isinstance(tokens, np.ndarray):
            tokens = tokens.tolist() if tokens.ndim == 1 else ()
        if not isinstance(tokens, (list, tuple)) or len(tokens) != self.ubatch.n_tokens:
            return False
        for id in tokens:
            is_id = type(id) is int or isinstance(id, np.integer)
            if not (is_id and 0 <= id < self.n_vocab):
                return False
        return True


def _rows(embd: Any) -> F32:
    with np.errstate(over="ignore"):  # the caller rejects values outside F32
        return np.ascontiguousarray(embd, np.float32)


def _is_all(outputs: Any, n: int, logits: Wanted) -> bool:
    if outputs is None:
        return n == 1 or logits == "all"
    return len(outputs) == n and all(outputs)


def next_token_path(
    splitter: BatchSplitter, mctx: GroupContext, epoch: int, n_vocab: int
) -> NextTokenPath | None:
    """Return the fast path after a decoded batch of one token per sequence, or of consecutive
    tokens of one sequence, computed together; None after any other."""
    ubatch = mctx.ubatches[0]
    n = ubatch.n_tokens
    alone = n == splitter.n_tokens == splitter.n_outputs
    in_a_row = ubatch.n_seqs_unq == 1 and ubatch.pos[n - 1] - ubatch.pos[0] == n - 1
    if not alone or not (n == ubatch.n_seqs_unq or in_a_row):
        return None
    if splitter.marks is not None or ubatch.has_embd or ubatch.seq_id != splitter.seq_id:
        return None
    if any(len(ids) > 1 for ids in ubatch.seq_id) or not mctx.is_settled:
        return None
    return NextTokenPath(n_vocab, splitter, ubatch, (_copy(ubatch), _copy(ubatch)), mctx, epoch)


def _copy(ubatch: UBatch) -> UBatch:
    assert ubatch.token is not None
    return replace(ubatch, token=ubatch.token.copy(), pos=ubatch.pos.copy())
