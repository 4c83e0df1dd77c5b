"""Draft length: the number of tokens worth drafting at the recent acceptance rate."""

from __future__ import annotations

import math

WORTH = 1 / 3  # a token is drafted if it is accepted at least once in so many times
MEMORY = 16  # tokens that the estimate remembers
START = 0.8


class Length:
    """The longest draft whose last token is still likely enough to be accepted.

    `rate` estimates how often a drafted token is right, all before it being right: a mean of the
    outcomes so far, in which each weighs 15/16 of the next one. The n-th token of a draft is
    accepted with probability rate^n; it is drafted while that is at least 1/3, and one always is.
    """

    def __init__(self) -> None:
        self.rate = START

    def update(self, n_drafted: int, n_accepted: int) -> None:
        """Update the acceptance rate; draft tokens after the first rejected one are ignored."""
        outcomes = [1.0] * n_accepted + [0.0] * (n_accepted < n_drafted)
        for right in outcomes:
            self.rate += (right - self.rate) / MEMORY

    def best(self, n_max: int) -> int:
        """Return the number of tokens worth drafting, from 1 to n_max."""
        if self.rate >= 1:
            return n_max
        return max(1, min(n_max, math.floor(math.log(WORTH) / math.log(self.rate))))
