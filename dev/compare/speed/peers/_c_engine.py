"""Base class of llama.cpp and its derivatives: the functions of llama.h."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from dev.compare.speed.engine import Engine, Sizes


class CEngine(Engine):
    """Engine behind llama.h. `lib` has its functions as attributes.

    model, ctx  pointers; a subclass loads the first and opens the second
    """

    lib: Any
    model: Any
    ctx: Any = None
    embeds = False
    rows: Any  # a batch of tokens of several sequences

    def open(self, sizes: Sizes) -> None:
        if self.ctx:
            self.lib.llama_batch_free(self.rows)
            self.lib.llama_free(self.ctx)
            self.ctx = None
        self.ctx = self.new_context(sizes)
        if not self.ctx:
            raise RuntimeError(f"{self.name} cannot make a context of {sizes}")
        self.at = [0] * sizes.n_seqs
        self.kept: list[tuple[int, Any]] = []
        self.rows = self.lib.llama_batch_init(sizes.n_batch, 0, 1)
        for i in range(sizes.n_batch):
            self.rows.n_seq_id[i] = 1

    @abstractmethod
    def new_context(self, sizes: Sizes) -> Any:
        """Return a pointer to a context, or None."""

    @abstractmethod
    def one(self, tokens: Any, n: int) -> Any:
        """Return a batch of sequence 0 with logits of its last token."""

    @abstractmethod
    def remove(self, seq: int, start: int) -> None:
        """Remove a sequence's tokens from a position on."""

    @property
    @abstractmethod
    def goes_back(self) -> bool:
        """Return True if the engine can roll back."""

    @abstractmethod
    def set_state(self, seq: int, state: Any) -> None:
        """Set a sequence to a state from `save`, an array of bytes."""

    def restore(self, seq: int, state: Any, n: int) -> None:
        if isinstance(state, bytes):
            state = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        self.set_state(seq, state)
        self.at[seq] = n

    def clear(self) -> None:
        self.forget()
        self.at = [0] * len(self.at)

    @abstractmethod
    def forget(self) -> None:
        """Empty the memory, without zeroing it if possible."""

    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        if seq:
            return self._rows(tokens, [seq] * len(tokens), every=False)
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        self._run(self.one(array, len(tokens)))
        self.at[0] += len(tokens)
        if self.embeds:
            return self.lib.llama_get_embeddings_seq(self.ctx, 0)
        return self.lib.llama_get_logits_ith(self.ctx, -1)

    def step(self, tokens: Sequence[int]) -> None:
        self._rows(tokens, range(len(tokens)))

    def decode_all(self, tokens: Sequence[int]) -> None:
        self._rows(tokens, [0] * len(tokens))

    def _rows(self, tokens: Sequence[int], seqs: Sequence[int], every: bool = True) -> None:
        """Decode tokens of several sequences; logits of every token, or of the last."""
        rows, at, last = self.rows, self.at, len(tokens) - 1
        for i, (token, seq) in enumerate(zip(tokens, seqs, strict=True)):
            rows.token[i], rows.pos[i], rows.seq_id[i][0] = token, at[seq], seq
            rows.logits[i] = every or i == last
            at[seq] += 1
        rows.n_tokens = len(tokens)
        self._run(rows)

    def _run(self, batch: Any) -> None:
        code = self.lib.llama_decode(self.ctx, batch)
        if code:
            raise RuntimeError(f"llama_decode gave {code}")
        self.lib.llama_synchronize(self.ctx)

    def keep(self) -> None:
        copied = self.depth > 0 and not self.goes_back
        self.kept = [(s, self.save(s) if copied else None) for s in range(len(self.at))]

    def back(self) -> None:
        if not self.depth:
            self.clear()
            return
        for seq, state in self.kept:
            if state is None:
                self.remove(seq, self.depth)
                self.at[seq] = self.depth
            else:
                self.restore(seq, state, self.depth)
