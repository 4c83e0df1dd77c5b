"""One token after one token of the same sequence, which is what most decodes are.

The graph is the same, and of the memory and of the inputs only what grows by a token is changed:
nothing is checked, split, placed or looked for again. Whatever is not so simple is decoded as any
batch is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llama_py.batch import I32, Batch, UBatch, Wanted
from llama_py.memory import GroupContext, MemoryGroup
from llama_py.splitter import BatchSplitter


@dataclass(slots=True)
class Following:
    """A token that was decoded alone, with logits.

    settings  what the graph was made for, compared by identity
    changes   those of the memory until then
    """

    n_vocab: int
    splitter: BatchSplitter
    ubatch: UBatch
    mctx: GroupContext
    settings: tuple[object, ...]
    changes: int

    @property
    def seq_id(self) -> int:
        return self.ubatch.seq_id_unq[0]

    def next(
        self, tokens: Sequence[int] | I32 | Batch, logits: Wanted, seq_id: int
    ) -> UBatch | None:
        """A batch that is the token after this one; None for any other."""
        embd = None
        if isinstance(tokens, Batch):
            batch, tokens = tokens, tokens.tokens if tokens.tokens is not None else ()
            if batch.pos is not None or np.ndim(tokens) != 1 or len(tokens) != 1:
                return None
            embd = batch.embd
            if not _is_all(batch.outputs) or not self._is_here(batch.seq_ids):
                return None
        elif np.ndim(tokens) != 1 or len(tokens) != 1 or seq_id != self.seq_id:
            return None
        if isinstance(tokens, bytearray):  # is refused
            return None
        if logits == "none" or not self._fits(tokens[0], embd) or not self.mctx.can_follow():
            return None
        return self._ubatch(tokens[0], embd)

    def is_valid(self, memory: MemoryGroup, settings: tuple[object, ...]) -> bool:
        """Whether nothing was changed since."""
        same = all(a is b for a, b in zip(self.settings, settings, strict=True))
        return same and self.changes == memory.changes

    def _is_here(self, seq_ids: Any) -> bool:
        here = (self.seq_id,)
        return here == (0,) if seq_ids is None else len(seq_ids) == 1 and tuple(seq_ids[0]) == here

    def _fits(self, token: Any, embd: Any) -> bool:
        """Whether inputs are of the same kinds, and the token exists."""
        mine = self.ubatch.embd
        if (embd is None) != (mine is None) or (mine is not None and np.shape(embd) != mine.shape):
            return False
        is_id = isinstance(token, (int, np.integer)) and token is not True and token is not False
        return is_id and 0 <= token < self.n_vocab

    def _ubatch(self, token: Any, embd: Any) -> UBatch:
        """Another one each time: what was interrupted is known by its ubatch."""
        u = self.ubatch
        rows = None if embd is None else np.ascontiguousarray(embd, np.float32)
        return UBatch(
            u.equal_seqs, 1, u.n_seq_tokens, u.n_seqs, u.n_pos, np.array([token], np.int32), rows,
            u.pos + 1, u.seq_id, u.seq_id_unq, u.output, u.batch_idxs, u.kind,
        )  # fmt: skip


def _is_all(outputs: Any) -> bool:
    return outputs is None or (len(outputs) == 1 and bool(outputs[0]))


def following(
    splitter: BatchSplitter, mctx: GroupContext, settings: tuple[object, ...],
    memory: MemoryGroup, n_vocab: int,
) -> Following | None:  # fmt: skip
    """For the token after a batch that was decoded; None if that was not one token of a sequence.
    """
    ubatch = mctx.ubatches[0]
    alone = splitter.n_tokens == splitter.n_outputs == ubatch.n_seqs_unq == 1
    if not alone or ubatch.token is None:
        return None
    return Following(n_vocab, splitter, ubatch, mctx, settings, memory.changes)
