"""A sequence that goes on: what of its text is in the memory, and what was guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_py.batch import F32
from llama_py.decoding.draft_length import Length
from llama_py.decoding.known_text import KnownText

Allowed = Callable[[Sequence[int]], int]


@dataclass(slots=True)
class Track:
    """What is known of one sequence.

    pending   tokens of the text that the memory does not have
    told      the position up to which the prefix cache knows the sequence; None if it does not
    alone     it went on by itself, with the cache's own `decode`: `told` is to be looked up
    n_left    tokens that will still be taken, at most
    allowed   how many tokens of a draft may be chosen at all; None: it is not known
    draft     guesses that follow them, and whose they are
    rows      logits after the last pending token and after each guess
    n_taken, n_accepted   tokens chosen from them, and how many were as guessed
    begun     whether the memory has what was computed, and no failed decode discarded it
    mixed     there is more in it than tokens
    drafted   drafters guess for it
    """

    seq_id: int
    text: KnownText
    pending: list[int]
    told: int | None
    n_left: int = 2**31
    allowed: Allowed | None = None
    draft: list[int] = field(default_factory=list)
    author: str = ""
    rows: F32 | None = None
    n_taken: int = 0
    n_accepted: int = 0
    begun: bool = False
    mixed: bool = False
    drafted: bool = False
    alone: bool = False
    lengths: dict[str, Length] = field(default_factory=dict)

    @property
    def pos(self) -> int:
        """That of the first pending token."""
        return self.text.end - len(self.pending)

    def length(self, author: str) -> Length:
        return self.lengths.setdefault(author, Length())

    @property
    def has_rows(self) -> bool:
        """Whether another token can be taken: the last one was as guessed."""
        return self.rows is not None and self.n_taken == self.n_accepted < len(self.rows)
