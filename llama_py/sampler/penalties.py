"""Changes to logits of single tokens: repetition penalties and biases (llama-sampler.cpp)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from llama_py.sampler.candidates import Candidates, Filter, f32
from llama_py.sampler.recent import Recent


class Penalties(Recent):
    """Makes the last `last_n` accepted tokens less likely (llama_sampler_penalties_apply).

    `repeat` divides positive logits and multiplies others, `frequency` is subtracted for each
    occurrence, `presence` once per token.
    """

    def __init__(self, last_n: int, repeat: float, frequency: float, presence: float) -> None:
        self.repeat, self.frequency, self.presence = f32(repeat), f32(frequency), f32(presence)
        super().__init__(last_n)

    def __call__(self, c: Candidates) -> Candidates:
        counts = Counter(self._last)
        ids = np.fromiter(counts, np.intp, len(counts))
        count = np.fromiter(counts.values(), np.float32, len(counts))
        at, which = c.places(ids)
        old = c.logits[at]
        with np.errstate(over="ignore", invalid="ignore"):  # the sampler checks the result
            scaled = np.where(old <= 0, old * self.repeat, old / self.repeat)
            less = count[which] * self.frequency + self.presence
            return c.replace_logits(at, scaled - less)


def penalties(last_n: int, repeat: float, frequency: float, presence: float) -> Penalties | None:
    if last_n <= 0 or (repeat == 1 and frequency == 0 and presence == 0):
        return None
    return Penalties(last_n, repeat, frequency, presence)


def logit_bias(bias: Mapping[int, float]) -> Filter | None:
    """Add numbers to the logits of single tokens; -inf forbids one."""
    if not bias:
        return None
    ids = np.fromiter(bias, np.intp, len(bias))
    with np.errstate(over="ignore"):
        added = np.fromiter(bias.values(), np.float64, len(bias)).astype(np.float32)

    def add(c: Candidates) -> Candidates:
        at, which = c.places(ids)
        logits = c.logits.copy()
        with np.errstate(over="ignore"):
            logits[at] += added[which]
        return Candidates(c.ids, logits)

    return add
