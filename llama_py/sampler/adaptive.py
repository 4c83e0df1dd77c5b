"""Adaptive-p: prefers tokens near a target probability (llama_sampler_adaptive_p_apply)."""

from __future__ import annotations

import numpy as np

from llama_py.sampler.candidates import F32, Candidates, f32
from llama_py.sampler.draw import Draw, place
from llama_py.sampler.mt19937 import Mt19937

_WIDTH = np.float32(0.3)
_PEAK = np.float32(5)
_SHARPNESS = np.float32(10)


class AdaptiveP(Draw):
    """Draw that lowers logits by the distance from a desired probability, which would move the
    average of accepted tokens to the target; a negative target disables it.

    decay  fraction of the average that each token keeps, 0 to 0.99
    """

    def __init__(self, target: float, decay: float, random: Mt19937) -> None:
        self.target, self.decay, self.random = f32(max(target, -1)), f32(decay), random
        self._start()

    def _start(self) -> None:
        one = np.float32(1)
        self._sum, self._weight = self.target / (one - self.decay), one / (one - self.decay)
        self._before: F32 = np.empty(0, np.float32)  # probabilities before adaptation
        self._drawn = np.float32(0)  # original probability of the drawn token

    def __call__(self, c: Candidates) -> Candidates:
        if self.target < 0:
            return c
        self._before = c.probabilities()
        wanted = np.clip(2 * self.target - self._sum / self._weight, 0, 1)
        distance = np.abs((self._before - wanted) * (1 / _WIDTH))
        logits = _PEAK - _SHARPNESS * distance * distance / (1 + distance)
        return Candidates(c.ids, np.where(c.logits > -np.inf, logits, c.logits))

    def draw(self, c: Candidates) -> int:
        p = c.probabilities()
        at = place(p, self.random.double()) if p.size > 1 else 0
        if self.target >= 0:
            self._drawn = self._before[at]
        return int(c.ids[at])

    def accept(self, id: int, drawn: bool) -> None:
        if drawn and self.target >= 0:
            self._sum = self._drawn + self.decay * self._sum
            self._weight = 1 + self.decay * self._weight

    def reset(self) -> None:
        self._start()
        self.random.reset()
