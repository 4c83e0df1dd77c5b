"""What the whole answer must be, token by token: a grammar, say."""

from __future__ import annotations

from typing import Protocol

from llama_py.sampler.candidates import Candidates


class Constraint(Protocol):
    """Says which token may come next.

    Most tokens that the chain chooses are allowed anyway, and to ask for one is quick. So a token
    is drawn first, and only if it is refused all candidates are asked for, and drawn from once
    more (common_sampler_sample).
    """

    def allows(self, id: int) -> bool:
        """Whether the token may come next."""
        ...

    def apply(self, c: Candidates) -> Candidates:
        """The candidates with -inf for those that may not."""
        ...

    def accept(self, id: int) -> None:
        """A token of the answer. The prompt's are not told."""
        ...

    def reset(self) -> None:
        """Back to the start of an answer."""
        ...

    def copy(self) -> Constraint:
        """One in the same state that goes its own way."""
        ...
