"""DRY ("don't repeat yourself"): reduces logits of tokens that would extend a repetition
(llama_sampler_dry_apply; by pi6am, in KoboldCpp)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from llama_py.sampler.breakers import Breakers
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.recent import Recent

_LOG_OF_LARGEST = 88.7228391  # logarithm of the largest 32-bit number


class Dry(Recent):
    """Penalty multiplier * base^(n - allowed) for a token that would extend a repetition of n
    tokens, if n is at least `allowed`.

    last_n    number of last tokens to search
    breakers  a repetition ends at a breaker, and breakers are not penalized
    """

    def __init__(
        self, multiplier: float, base: float, allowed: int, last_n: int, breakers: Breakers
    ) -> None:
        self.multiplier, self.base = multiplier, base
        self.allowed, self.breakers = allowed, breakers
        super().__init__(last_n)

    def __call__(self, c: Candidates) -> Candidates:
        """Subtract the penalties from the logits [n]."""
        lengths = repetitions(self._last, self.allowed, self.breakers)
        if not lengths:
            return c
        ids = np.fromiter(lengths, np.intp, len(lengths))
        loss = np.array([self._penalty(n) for n in lengths.values()], np.float32)
        at, which = c.places(ids)
        with np.errstate(over="ignore"):
            return c.replace_logits(at, c.logits[at] - loss[which])

    def _penalty(self, n: int) -> float:
        """Return the penalty of a repetition of n tokens, limited to finite values."""
        n -= self.allowed
        if self.base > 1.000001:
            n = min(n, int(_LOG_OF_LARGEST / math.log(self.base)))
        most = float(np.finfo(np.float32).max)
        return float(np.clip(self.multiplier * self.base**n, -most, most))


def dry(
    multiplier: float, base: float, allowed: int, last_n: int, breakers: Breakers
) -> Dry | None:
    if multiplier == 0 or base < 1 or last_n <= 0:
        return None
    return Dry(multiplier, base, allowed, last_n, breakers)


def repetitions(last: Sequence[int], allowed: int, breakers: Breakers) -> dict[int, int]:
    """Return tokens that would extend a repetition of at least `allowed` tokens, and its length."""
    back = list(last)[::-1]
    limit = _since_a_breaker(back, breakers)
    found: dict[int, int] = {}
    if len(back) <= allowed or limit < allowed:
        return found
    for k, n in enumerate(common_prefixes(back)):
        n = min(n, limit)
        if k > 0 and n >= allowed:
            id = back[k - 1]
            found[id] = max(n, found.get(id, 0))
    return {id: n for id, n in found.items() if () not in breakers.get(id, ())}


def _since_a_breaker(back: Sequence[int], breakers: Mapping[int, Sequence[tuple[int, ...]]]) -> int:
    """Return the number of tokens after the last breaker; `back`: tokens, the last one first."""
    for i, id in enumerate(back):
        tails = [t for t in breakers.get(id, ()) if len(t) <= i]
        ends = [len(t) for t in tails if all(t[n] == back[i - n - 1] for n in range(len(t)))]
        if ends:
            return i - max(ends)
    return len(back)


def common_prefixes(a: Sequence[int]) -> list[int]:
    """Return how many elements a[k:] has in common with a, for each k (linear Z algorithm)."""
    z = [0] * len(a)
    left, right = 0, 0  # the latest known repetition of the beginning
    for k in range(1, len(a)):
        n = min(right - k, z[k - left]) if k < right else 0
        while k + n < len(a) and a[n] == a[k + n]:
            n += 1
        z[k] = n
        if k + n > right:
            left, right = k, k + n
    return z
