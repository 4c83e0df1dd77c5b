"""What the whole answer must be, token by token: a grammar, say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ggml_py.errors import ModelError
from llama_py.sampler.candidates import Candidates


class Ended(ModelError):
    """A constraint allows no token: the answer ends here. complete: it is one that meets it."""

    def __init__(self, message: str, complete: bool) -> None:
        super().__init__(message)
        self.complete = complete


class Constraint(Protocol):
    """Says which token may come next.

    Most tokens that the chain chooses are allowed anyway, and to ask for one is quick. So a token
    is drawn first, and only if it is refused all candidates are asked for, and drawn from once
    more (common_sampler_sample).
    """

    def allows(self, id: int) -> bool:
        """Whether the token may come next."""
        ...

    def n_allowed(self, ids: Sequence[int]) -> int:
        """How many of these tokens may come next, one after another."""
        ...

    def apply(self, c: Candidates) -> Candidates:
        """The candidates with -inf for those that may not. They are the whole vocabulary, in
        order."""
        ...

    def accept(self, id: int) -> None:
        """A token of the answer. The prompt's are not told."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        ...

    def reset(self) -> None:
        """Back to the start of an answer."""
        ...

    def copy(self) -> Constraint:
        """One in the same state that goes its own way."""
        ...
