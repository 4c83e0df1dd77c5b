"""Last stage of the chain: draws a token from the remaining candidates."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from llama_py.sampler.candidates import F32, Candidates, SamplerStage, check
from llama_py.sampler.mt19937 import Mt19937


class Draw(SamplerStage):
    """Stage that draws a token; calling it transforms the candidates before."""

    @abstractmethod
    def draw(self, c: Candidates) -> int:
        """Return the id of a candidate."""


class GreedyDraw(Draw):
    """Draw of the most likely token, the first if equal."""

    def __call__(self, c: Candidates) -> Candidates:
        best = int(c.logits.argmax())  # the first NaN, if any
        check(c.logits[best])
        return c.take(slice(best, best + 1))

    def draw(self, c: Candidates) -> int:
        return int(c.ids[0])


class Dist(Draw):
    """Draws tokens by their probability (llama_sampler_dist_apply)."""

    def __init__(self, random: Mt19937) -> None:
        self.random = random

    def __call__(self, c: Candidates) -> Candidates:
        return c

    def reset(self) -> None:
        self.random.reset()

    def draw(self, c: Candidates) -> int:
        drawn = self.random.double()  # also for one candidate, like llama.cpp
        with np.errstate(over="ignore"):
            return int(c.ids[place(np.exp(c.logits - c.max()), drawn)])


def place(weights: F32, drawn: float) -> int:
    """Return the first index with cumulated weights of at least `drawn`, 0 <= drawn < 1."""
    total = np.cumsum(weights, dtype=np.float64)
    share = max(drawn * total[-1], np.finfo(np.float64).tiny)  # excludes weights of 0
    return int(np.searchsorted(total, share))
