"""A constraint by a grammar: llguidance says which tokens go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from llama_py.grammar import Grammar
from llama_py.grammar.vocabulary import matcher
from llama_py.sampler.candidates import F32, Candidates
from llama_py.tokenizer import Tokenizer

# By a byte of a mask: what is added to the logits of its eight tokens, the lowest bit's first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_ADDED = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))


class ByGrammar:
    """Answers are what a grammar takes. They end only where it lets them."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer) -> None:
        """Raises GrammarError where no answer can begin."""
        self.n_tokens, self.ends = tokenizer.n_vocab, tokenizer.eog
        self._first = matcher(grammar, tokenizer)
        self._now: Any = self._first.deep_copy()

    def allows(self, id: int) -> bool:
        return self.n_allowed((id,)) == 1

    def n_allowed(self, ids: Sequence[int]) -> int:
        """How many of these tokens may come next, one after another."""
        if self._now.is_error() or not len(ids):
            return 0
        if ids[0] in self.ends:  # asked for, llguidance does not say so once nothing may follow
            return int(self.complete)
        known = list(takewhile(lambda id: id < self.n_tokens, ids))  # beyond them is an error
        return int(self._now.validate_tokens(known))

    def apply(self, c: Candidates) -> Candidates:
        """c: the whole vocabulary, in order (248,320 tokens: 0.08 ms, and what llguidance takes).
        """
        n = c.ids.size
        bits = np.frombuffer(self._now.compute_bitmask(), np.uint8)
        if self._now.is_error():  # a dead end, or a limit: the mask then has the end tokens
            bits = np.zeros_like(bits)
        if bits.size * 8 < n:  # logits without a token
            bits = np.pad(bits, (0, (n + 7) // 8 - bits.size))
        left: F32 = np.take(_ADDED, bits, axis=0).reshape(-1)[:n]
        np.add(left, c.logits, out=left)
        return Candidates(c.ids, left)

    def accept(self, id: int) -> None:
        self._now.consume_token(id)

    @property
    def complete(self) -> bool:
        return bool(self._now.is_accepting())

    def reset(self) -> None:
        self._now = self._first.deep_copy()

    def copy(self) -> ByGrammar:
        other = ByGrammar.__new__(ByGrammar)
        vars(other).update(vars(self), _now=self._now.deep_copy())
        return other
