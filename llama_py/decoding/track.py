"""State of a sequence: pending tokens, draft and logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llama_py.batch import F32
from llama_py.batch.entries import MediaRows
from llama_py.decoding.draft_length import Length
from llama_py.decoding.known_text import KnownText

Allowed = Callable[[Sequence[int]], int]


@dataclass(slots=True)
class Track:
    """State of one sequence.

    pending   tokens of the text that are not in the memory yet
    told      end of the part that the prefix cache knows; None: unknown sequence
    alone     True if it continued with the cache's `decode`, which does not update `told`
    n_left    maximum number of further tokens
    allowed   returns the number of draft tokens that the sampler may choose; None: unknown
    draft     draft tokens after `pending`; author  name of their drafter
    rows      logits after the last pending token and after each draft token
    n_taken, n_accepted   tokens chosen from the rows, and how many equal the draft
    begun     True if the memory has the computed tokens: no failed decode discarded them
    mixed     True if the sequence has images
    drafted   True if drafters may propose tokens for the sequence
    images    image tokens among the pending ids, by position
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
    images: dict[int, MediaRows] = field(default_factory=dict)
    lengths: dict[str, Length] = field(default_factory=dict)

    @property
    def pos(self) -> int:
        """Position of the first pending token."""
        return self.text.end - len(self.pending)

    def length(self, author: str) -> Length:
        return self.lengths.setdefault(author, Length())

    @property
    def has_rows(self) -> bool:
        """True if `take` can return another token, because the last token equals the draft."""
        return self.rows is not None and self.n_taken == self.n_accepted < len(self.rows)
