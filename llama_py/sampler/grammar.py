"""Constraint by a grammar, evaluated by llguidance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from llama_py.grammar import Grammar
from llama_py.grammar.vocabulary import matcher
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.masked import mask
from llama_py.tokenizer import Tokenizer


class ByGrammar:
    """Constraint by a grammar, which a response must match before it ends."""

    holds = True

    def __init__(
        self, grammar: Grammar, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()
    ) -> None:
        """Start the grammar; shown: control tokens that are texts. GrammarError if it is empty."""
        self.n_tokens, self.ends = tokenizer.n_vocab, tokenizer.eog
        self._mask = mask()
        self._first = matcher(grammar, tokenizer, shown)
        self._now: Any = self._first.deep_copy()

    def allows(self, id: int) -> bool:
        return self.n_allowed((id,)) == 1

    def n_allowed(self, ids: Sequence[int]) -> int:
        """Return how many of `ids` are allowed in sequence."""
        if self._now.is_error() or not len(ids):
            return 0
        if ids[0] in self.ends:  # llguidance refuses an end token after the complete grammar
            return int(self.complete)
        known = list(takewhile(lambda id: id < self.n_tokens, ids))  # larger ids raise an error
        return int(self._now.validate_tokens(known))

    def apply(self, c: Candidates) -> Candidates:
        """Mask the candidates; c: the whole vocabulary, in order."""
        bits = self._now.compute_bitmask()
        if self._now.is_error():  # a dead end, or a limit: the mask then has the end tokens
            bits = b""
        return Candidates(c.ids, self._mask(c.logits, bits))

    def accept(self, id: int) -> None:
        self._now.consume_token(id)

    def begin_response(self, ids: Sequence[int]) -> None:
        """Make responses continue `ids`, if the grammar allows these tokens."""
        if self.n_allowed(ids) == len(ids):
            self._first.consume_tokens(list(ids))
            self.reset()

    @property
    def complete(self) -> bool:
        return bool(self._now.is_accepting())

    def reset(self) -> None:
        self._now = self._first.deep_copy()

    def copy(self) -> ByGrammar:
        other = ByGrammar.__new__(ByGrammar)
        vars(other).update(vars(self), _now=self._now.deep_copy())
        return other
