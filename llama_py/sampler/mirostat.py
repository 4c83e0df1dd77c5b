"""Mirostat: limits candidates to a target surprise (arXiv:2007.14966).

Surprise is -log2 of a token's probability. `tau` is the target, `mu` the allowed surprise,
corrected after each token by `eta` times the difference."""

from __future__ import annotations

import math

import numpy as np

from llama_py.sampler.candidates import F32, Candidates, f32
from llama_py.sampler.draw import Draw, place
from llama_py.sampler.mt19937 import Mt19937

_MOST = 100  # candidates for estimating the decay of probabilities


class _Mirostat(Draw):
    """mu changes when the token that was drawn is accepted; in llama.cpp, when it is drawn."""

    def __init__(self, n_vocab: int, tau: float, eta: float, random: Mt19937) -> None:
        self.n_vocab, self.tau, self.eta, self.random = n_vocab, f32(tau), f32(eta), random
        self.mu = self._next_mu = np.float32(2) * self.tau

    def draw(self, c: Candidates) -> int:
        p = c.probabilities()
        at = place(p, self.random.double()) if p.size > 1 else 0
        self._next_mu = self.mu - self.eta * (-np.log2(p[at]) - self.tau)
        return int(c.ids[at])

    def accept(self, id: int, drawn: bool) -> None:
        if drawn:
            self.mu = self._next_mu

    def reset(self) -> None:
        self.mu = self._next_mu = np.float32(2) * self.tau
        self.random.reset()


class Mirostat(_Mirostat):
    """Version 1: the k most likely; k follows from how fast probabilities fall."""

    def __call__(self, c: Candidates) -> Candidates:
        c = c.sort()
        return c.top_k(self._k(c))

    def _k(self, c: Candidates) -> int:
        """Return the number of candidates as llama_sampler_mirostat_apply computes it in 32 bits: 1
        without a solution, all if k exceeds every vocabulary (undefined in llama.cpp)."""
        one, mu, n_vocab = np.float32(1), self.mu, np.float32(self.n_vocab)
        p = c.probabilities()[:_MOST]
        i = np.arange(1, p.size, dtype=np.float32)
        with np.errstate(all="ignore"):
            t, b = np.log((i + 1) / i), np.log(p[:-1] / p[1:])
            s = _sum(t * b) / _sum(t * t)
            e = s - one
            k = float(((e * np.exp2(mu)) / (one - n_vocab**-e)) ** (one / s))
        if math.isnan(k):
            return 1
        return max(int(min(k, c.ids.size)), 1)


class MirostatV2(_Mirostat):
    """Version 2: candidates with a surprise of up to mu, and always the most likely."""

    def __call__(self, c: Candidates) -> Candidates:
        c = c.sort()
        with np.errstate(divide="ignore"):
            n = int(np.count_nonzero(-np.log2(c.probabilities()) <= self.mu))
        return c.top_k(max(n, 1))


def _sum(values: F32) -> np.float32:
    """Sum the values one by one, in 32 bits."""
    total: np.float32 = np.cumsum(np.append(np.float32(0), values))[-1]
    return total
