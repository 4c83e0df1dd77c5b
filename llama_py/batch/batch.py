"""Batches of tokens to decode, and ubatches that one graph computes (llama-batch.h)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
Index = slice | npt.NDArray[np.intp]
SeqIds = tuple[int, ...]
Wanted = Literal["last", "all", "none"]

END = 2**31 - 1  # one past any position
NO_TOKEN = -1  # llama.h:LLAMA_TOKEN_NULL: an entry is a row of embd instead of a token
N_MARKS = 5  # values of marks


@dataclass(slots=True)
class Batch:
    """Tokens, rows of embeddings, or a mix of both, to decode (llama_batch, llama_batch_ext).

    `Batch(tokens=[5, -1, -1, 7], embd=rows)` is a mixed batch of four entries. Each token -1 uses
    the next row of `embd`. Below, n_tokens is the number of entries.

    tokens   ids [n_tokens], -1 for a row of `embd`; None if the batch has only `embd`
    embd     F32 [n_tokens, n_embd_inp]: input embeddings, in a mixed batch one row for each token
             -1; or (MTP) hidden states of the tokens
    pos      position of each token; None: each sequence continues after its last position.
             M-RoPE embeddings may give [n_pos, n_tokens]; tokens use the first row
    seq_ids  the sequences each token belongs to; None: sequence 0
    outputs  True for tokens with logits; None: as specified by decode's arguments
    marks    mark of each token, for models that score options (HParams.decides): 0 unmarked, 1 to 3
             question, 4 option; None: all unmarked
    """

    tokens: Sequence[int] | I32 | None = None
    embd: F32 | None = None
    pos: Sequence[int] | I32 | None = None
    seq_ids: Sequence[Iterable[int]] | None = None
    outputs: Sequence[bool] | npt.NDArray[np.bool_] | None = None
    marks: Sequence[int] | I32 | None = None

    @property
    def is_mixed(self) -> bool:
        """True if some tokens are -1, so that rows of `embd` replace them."""
        if self.tokens is None or self.embd is None:
            return False
        return bool(np.any(np.asarray(self.tokens) == NO_TOKEN))


@dataclass(slots=True)
class UBatch:
    """A part of a batch that one graph computes (llama_ubatch).

    With `equal_seqs` the tokens are sequence-major: n_tokens = n_seq_tokens * n_seqs.

    token       I32 [n_tokens] or None;  embd  F32 [n_tokens, n_embd] or None
    is_embd     bool [n_tokens] of a mixed ubatch: True for rows of embd (their token is -1), False
                for tokens (their row of embd is 0). None: all entries are of one kind
    pos         I32 [n_pos * n_tokens], section-major
    seq_id      sequences of each token, ascending;  seq_id_unq  all sequences, ascending
    output      bool [n_tokens]
    batch_idxs  index of each token in the batch
    kind        kind of the tokens, see BatchSplitter.set_kinds
    marks       I32 [n_tokens] or None
    streams     parts of the caches, one for each set of sequences; (): the caches have one part
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
    marks: I32 | None = None
    streams: Sequence[int] = ()
    is_embd: npt.NDArray[np.bool_] | None = None
    _by_seq: list[tuple[int, Index]] | None = field(default=None, repr=False)

    @property
    def n_seqs_unq(self) -> int:
        return len(self.seq_id_unq)

    @property
    def has_embd(self) -> bool:
        """True if some entries are rows of embd in place of tokens."""
        return self.token is None or self.is_embd is not None

    @property
    def embd_rows(self) -> npt.NDArray[np.bool_]:
        """True for each entry that is a row of embd in place of a token, [n_tokens]."""
        if self.is_embd is not None:
            return self.is_embd
        return np.full(self.n_tokens, self.token is None)

    @property
    def n_each(self) -> int:
        """Tokens per sequence, if equal for all."""
        return self.n_tokens // len(self.seq_id_unq)

    @property
    def n_seq_id(self) -> list[int]:
        return [len(s) for s in self.seq_id]

    def by_seq(self) -> list[tuple[int, Index]]:
        """Return each sequence with the indices of its tokens."""
        if self._by_seq is None:
            if len(self.seq_id_unq) == 1:
                self._by_seq = [(self.seq_id_unq[0], slice(0, self.n_tokens))]
            else:
                self._by_seq = list(index_sequences(self.seq_id).items())
        return self._by_seq


def ubatch_reserve(n_seq_tokens: int, n_seqs: int, n_pos: int = 1) -> UBatch:
    """Return a well-formed ubatch of token 0, for graphs that are only measured."""
    n = n_seq_tokens * n_seqs
    return UBatch(
        True,
        n,
        n_seq_tokens,
        n_seqs,
        n_pos,
        np.zeros(n, np.int32),
        None,
        np.zeros(n * n_pos, np.int32),
        [(s,) for s in range(n_seqs) for _ in range(n_seq_tokens)],
        list(range(n_seqs)),
        np.zeros(n, np.bool_),
        np.arange(n, dtype=np.intp),
    )


def index_sequences(seq_id: list[SeqIds]) -> dict[int, Index]:
    """Return each sequence with the indices of its tokens."""
    found: dict[int, list[int]] = {}
    for i, ids in enumerate(seq_id):
        for s in ids:
            found.setdefault(s, []).append(i)
    return {s: np.array(i, np.intp) for s, i in sorted(found.items())}
