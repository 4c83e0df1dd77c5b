"""Interface of constraints on a response, checked token by token, such as a grammar."""

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
        """Return True if the token may come next."""
        ...

    def n_allowed(self, ids: Sequence[int]) -> int:
        """Return how many of these tokens may come next, one after another."""
        ...

    def apply(self, c: Candidates) -> Candidates:
        """Set candidates that may not come next to -inf; they are the whole vocabulary in order."""
        ...

    def accept(self, id: int) -> None:
        """Note a token of the response; prompt tokens are not passed."""
        ...

    @property
    def complete(self) -> bool:
        """True if the response may end here."""
        ...

    def reset(self) -> None:
        """Reset to the start of a response."""
        ...

    def copy(self) -> Constraint:
        """Return an independent copy in the same state."""
        ...
