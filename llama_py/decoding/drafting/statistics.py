"""Statistics of drafted and accepted tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from ggml_py._moved import Former


@dataclass(slots=True)
class DraftStatistics:
    """Number of drafted and accepted tokens of one draft method.

    n_drafts     verified drafts; n_drafted, n_accepted  their tokens
    drafted_at   number of drafts with a token at each position; accepted_at  with an accepted one
    seconds      time spent on drafting, including drafts without tokens
    """

    n_drafts: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, n_drafted: int, n_accepted: int) -> None:
        """Add the result of a verified draft."""
        self.n_drafts += 1
        self.drafted_at = _count(self.drafted_at, n_drafted)
        self.accepted_at = _count(self.accepted_at, n_accepted)

    @property
    def n_drafted(self) -> int:
        return sum(self.drafted_at)

    @property
    def n_accepted(self) -> int:
        return sum(self.accepted_at)

    @property
    def rate(self) -> float:
        """Accepted of all drafted tokens."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0

    @property
    def rates(self) -> list[float]:
        """Accepted of drafted tokens by position."""
        pairs = zip_longest(self.accepted_at, self.drafted_at, fillvalue=0)
        return [accepted / drafted for accepted, drafted in pairs]

    @property
    def mean_length(self) -> float:
        """Mean number of tokens per verified draft, including the model's additional token."""
        return 1 + self.n_accepted / self.n_drafts if self.n_drafts else 0.0

    def text(self) -> str:
        """Return the statistics as one line."""
        rates = " ".join(f"{rate:.2f}" for rate in self.rates[:8])
        more = " ..." if len(self.drafted_at) > 8 else ""
        return (
            f"drafted {self.n_drafted} tokens in {self.n_drafts} drafts ({self.seconds:.2f} s), "
            f"accepted {self.n_accepted} ({self.rate:.1%}; by position {rates}{more}), "
            f"{self.mean_length:.2f} tokens per verification"
        )

    rate_at = Former("rates")


def _count(counts: list[int], n: int) -> list[int]:
    """Add one to the first n counts."""
    return [c + (i < n) for i, c in enumerate([*counts, *[0] * (n - len(counts))])]
