"""Report of how much of a prompt was computed, and why."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py._moved import Former


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Reused part of a prompt.

    n_tokens  tokens of the prompt
    n_same    length of the prefix that some sequence had
    n_reused  length of the prefix that is not computed again
    source    holder of its keys and values or state: "this sequence", "sequence 3", "host memory"
    stateful  the model has memory that cannot be rolled back token by token
    """

    n_tokens: int
    n_same: int = 0
    n_reused: int = 0
    source: str = ""
    stateful: bool = False

    @property
    def n_computed(self) -> int:
        """Tokens that have to be computed."""
        return self.n_tokens - self.n_reused

    @property
    def reason(self) -> str:
        """Short reason why no more was reused."""
        if self.n_same == 0:
            return "no cached sequence starts with this prompt"
        if self.n_reused == self.n_same:
            left = "" if self.n_same < self.n_tokens - 1 else "all but the last token are cached"
            return left or f"new from token {self.n_same}"
        differs = self.n_same < self.n_tokens - 1
        what = f"edited at token {self.n_same}" if differs else "same prompt as before"
        nearest = (
            f"nearest checkpoint at token {self.n_reused}" if self.n_reused else "no checkpoint"
        )
        return f"{what}; {nearest}"

    def __str__(self) -> str:
        source = f" from {self.source}" if self.source else ""
        return f"{self.n_reused} tokens reused{source}, {self.n_computed} computed ({self.reason})"

    why = Former("reason")
