"""Filters: functions from candidates to fewer, or changed, candidates (llama-sampler.cpp).

Each function takes a setting and returns the filter, or None if the setting disables it.
`min_keep` is the minimum number of remaining candidates.
"""

from __future__ import annotations

import math

import numpy as np

from llama_py.sampler.candidates import Candidates, Filter, SamplerStage, f32, top_indices
from llama_py.sampler.mt19937 import Mt19937

_TOP_P_TRIES = (1024, 32768)  # numbers of candidates to sort before sorting all


def top_k(k: int) -> Filter | None:
    """Keep the k most likely candidates, sorted."""
    if k <= 0:
        return None
    return lambda c: c.top_k(k)


def top_p(p: float, min_keep: int = 0) -> Filter | None:
    """Keep the smallest set of most likely candidates with a total probability of p."""
    if p >= 1:
        return None

    def keep(c: Candidates) -> Candidates:
        probabilities = c.probabilities()
        for k in (*_TOP_P_TRIES, c.ids.size):
            order = np.arange(c.ids.size) if c.sorted else top_indices(c.logits, k)
            total = np.cumsum(probabilities[order])
            n = max(int(np.searchsorted(total, np.float32(p))) + 1, min_keep)
            if n <= order.size:
                break
        return c.take(order[:n], True)

    return keep


def min_p(p: float, min_keep: int = 0) -> Filter | None:
    """Keep tokens at least p times as likely as the most likely."""
    if np.float32(p) <= 0:  # smaller than any positive 32-bit number
        return None
    distance = np.log(np.float32(p))

    def keep(c: Candidates) -> Candidates:
        enough = c.logits >= c.max() + distance
        n = int(np.count_nonzero(enough))
        if n >= max(min_keep, 1):
            return c.take(slice(n), True) if c.sorted else c.take(enough)
        return c.top_k(max(min_keep, 1))

    return keep


def typical_p(p: float, min_keep: int = 0) -> Filter | None:
    """Keep the smallest set of candidates with a total probability above p, the nearest to the
    entropy first.

    Impossible candidates have infinite surprise and do not change the entropy (llama.cpp's is
    NaN then).
    """
    if p >= 1:
        return None

    def keep(c: Candidates) -> Candidates:
        c = c.sort()
        probabilities = c.probabilities()
        with np.errstate(divide="ignore"):
            surprise = -np.log(probabilities)
        possible = probabilities > 0
        entropy = np.cumsum(probabilities[possible] * surprise[possible])[-1]
        order = np.argsort(np.abs(surprise - entropy), kind="stable")
        total = np.cumsum(probabilities[order])
        n = int(np.searchsorted(total, np.float32(p), side="right")) + 1
        return c.take(order[: max(n, min_keep)])

    return keep


def top_n_sigma(n: float) -> Filter | None:
    """Set logits more than n standard deviations below the largest to -inf."""
    if n <= 0:
        return None

    def mask(c: Candidates) -> Candidates:
        if c.ids.size < 2:
            return c
        possible = c.logits[c.logits > -np.inf]
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite spread passes all
            mean = np.cumsum(possible)[-1] / np.float32(possible.size)
            variance = np.cumsum((possible - mean) ** 2)[-1] / np.float32(possible.size)
            bound = c.max() - f32(n) * np.sqrt(variance)
        return c._replace(logits=np.where(c.logits < bound, np.float32(-np.inf), c.logits))

    return mask


class Xtc(SamplerStage):
    """Randomly drops all tokens above a threshold except the least likely ("exclude top
    choices")."""

    def __init__(self, p: float, threshold: float, min_keep: int, random: Mt19937) -> None:
        self.p, self.threshold, self.min_keep, self.random = p, threshold, min_keep, random

    def __call__(self, c: Candidates) -> Candidates:
        if c.ids.size < 2 or self.random.single() > np.float32(self.p):
            return c
        c = c.sort()
        above = int(np.count_nonzero(c.probabilities() >= np.float32(self.threshold)))
        if above < 2 or c.ids.size - (above - 1) < self.min_keep:
            return c
        return c.take(slice(above - 1, None), True)

    def reset(self) -> None:
        self.random.reset()


def xtc(p: float, threshold: float, min_keep: int, random: Mt19937) -> Xtc | None:
    if p <= 0 or threshold > 0.5:
        return None
    return Xtc(p, threshold, min_keep, random)


_LEAST, _MOST = 1e-37, 1e38  # limits of a temperature and a logit in 32 bits


def temperature(t: float, spread: float = 0.0, exponent: float = 1.0) -> Filter | None:
    """Divide logits by t: below 1, likely tokens become more likely; at 0, only the most likely
    remains (the first if equal).

    With a spread, the temperature is between t - spread (one certain candidate) and t + spread
    (all equal), by (entropy / largest entropy) to the power of `exponent`.
    """
    if spread <= 0:
        return None if t == 1 else lambda c: _divide(c, t)

    def adapt(c: Candidates) -> Candidates:
        if c.ids.size < 2:
            return c
        c = c.sort()
        probabilities = c.probabilities()
        probabilities = probabilities[probabilities > 0]
        entropy = -np.cumsum(probabilities * np.log(probabilities))[-1]
        share = max(float(entropy) / math.log(c.ids.size), 0.0)
        low, high = max(t - spread, 0.0), t + spread
        return _divide(c, low + (high - low) * share**exponent)

    return adapt


def _divide(c: Candidates, t: float) -> Candidates:
    if t <= 0:
        logits = np.full_like(c.logits, -np.inf)
        likeliest = int(np.argmax(c.logits))
        logits[likeliest] = c.logits[likeliest]
        return c._replace(logits=logits)
    with np.errstate(over="ignore"):
        if t >= _LEAST and abs(float(c.max())) < _MOST * t:
            return c._replace(logits=c.logits / f32(t))
        distances = (c.logits.astype(np.float64) - c.max()) / t  # may become infinite
        return c._replace(logits=distances.astype(np.float32))
