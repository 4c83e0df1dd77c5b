"""Interface of constraints on a response, checked token by token, such as a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ggml_py._moved import former_names
from ggml_py.errors import ModelError
from llama_py.sampler.candidates import Candidates


class ConstraintEnded(ModelError):
    """A constraint allows no token, so the response ends. complete: it meets the constraint."""

    def __init__(self, message: str, complete: bool) -> None:
        super().__init__(message)
        self.complete = complete


class Constraint(Protocol):
    """Rule for the next token.

    The constraint allows most tokens that the chain chooses, and a check of one token is fast. So
    a token is drawn first; if it is refused, all candidates are checked, and another token is
    drawn (common_sampler_sample).
    """

    def allows(self, id: int) -> bool:
        """Return True if the token is allowed next."""
        ...

    def n_allowed(self, ids: Sequence[int]) -> int:
        """Return how many of `ids` are allowed in sequence."""
        ...

    def apply(self, c: Candidates) -> Candidates:
        """Set forbidden candidates to -inf; `c` is the whole vocabulary in order."""
        ...

    def accept(self, id: int) -> None:
        """Note a token of the response; prompt tokens are not passed."""
        ...

    @property
    def complete(self) -> bool:
        """True if the response may end here."""
        ...

    @property
    def holds(self) -> bool:
        """True if it determines the end of the response; False before the trigger of a call."""
        ...

    def reset(self) -> None:
        """Reset to the start of a response."""
        ...

    def copy(self) -> Constraint:
        """Return an independent copy in the same state."""
        ...


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Ended="ConstraintEnded")
