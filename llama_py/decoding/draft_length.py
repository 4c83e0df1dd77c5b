"""Draft length: the number of tokens worth drafting at the recent acceptance rate."""

from __future__ import annotations

import math

WORTH = 1 / 3  # draft a token if its probability of acceptance is at least this
MEMORY = 16  # tokens in the estimate
START = 0.8


class Length:
    """Maximum useful draft length.

    `rate` estimates the probability that a draft token is accepted if the tokens before it were:
    a mean of past outcomes, in which each weighs 15/16 of the next one. The n-th token of a draft
    is accepted with probability rate^n. It is drafted if that is at least 1/3; the first always is.
    """

    def __init__(self) -> None:
        self.rate = START

    def update(self, n_drafted: int, n_accepted: int) -> None:
        """Update the acceptance rate; draft tokens after the first rejected one are ignored."""
        outcomes = [1.0] * n_accepted + [0.0] * (n_accepted < n_drafted)
        for right in outcomes:
            self.rate += (right - self.rate) / MEMORY

    def find_best(self, n_max: int) -> int:
        """Return the number of tokens worth drafting, from 1 to n_max."""
        if self.rate >= 1:
            return n_max
        return max(1, min(n_max, math.floor(math.log(WORTH) / math.log(self.rate))))
