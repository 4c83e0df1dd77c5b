"""Changes to the logits of single tokens: repetition penalties and biases (llama-sampler.cpp)."""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class Penalties:
    """Makes the last `last_n` accepted tokens less likely (llama_sampler_penalties_apply).

    `repeat` divides a positive logit and multiplies one that is not, `frequency` is subtracted once
    per occurrence, `presence` once.
    """

    def __init__(self, last_n: int, repeat: float, frequency: float, presence: float) -> None:
        self._repeat, self._frequency, self._presence = repeat, frequency, presence
        on = last_n > 0 and (repeat != 1 or frequency != 0 or presence != 0)
        self._last: deque[int] = deque(maxlen=last_n if on else 0)

    def accept(self, id: int) -> None:
        self._last.append(id)

    def reset(self) -> None:
        self._last.clear()

    def copy(self) -> Penalties:
        other = copy.copy(self)
        other._last = self._last.copy()
        return other

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The penalized logits, [n_vocab]; the given ones when there is nothing to do."""
        if not self._last:
            return logits
        counts = Counter(self._last)
        ids = np.fromiter(counts, np.intp, len(counts))
        count = np.fromiter(counts.values(), np.float32, len(counts))
        old, repeat = logits[ids], np.float32(self._repeat)
        logits = logits.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # the sampler looks at what comes of it
            scaled = np.where(old <= 0, old * repeat, old / repeat)
            logits[ids] = scaled - count * np.float32(self._frequency) - np.float32(self._presence)
        return logits


class LogitBias:
    """Adds a number to the logits of single tokens; -inf forbids one."""

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = np.fromiter(bias, np.intp, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The biased logits, [n_vocab]; the given ones when there is no bias."""
        if not self._ids.size:
            return logits
        logits = logits.copy()
        logits[self._ids] += self._bias
        return logits
