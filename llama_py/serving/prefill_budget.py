"""Number of prompt tokens in a step that also generates tokens, which keeps responses smooth."""

from __future__ import annotations

from collections.abc import Sequence

SECONDS = 1.0  # limit of a step's prompt time,
TIMES = 4.0  # or this multiple of a step without prompts: large models need it
FIRST = 64  # tokens in the first step, before any measurement
LEAST = 16
WEIGHT = 0.2  # weight of a slower step in the mean; a faster step replaces the mean


class PrefillBudget:
    """Measurement of the time per prompt token, from steps.

    Responses wait for all pieces of a prompt in any case. Large pieces finish prompts sooner,
    delay fewer response tokens, and need fewer graphs: each other number of tokens needs another
    graph, which takes as long to build as some tens of tokens to compute. A prompt is
    therefore processed at once unless that takes too long. Pieces are whole ubatches or powers of
    two.
    """

    def __init__(self, n_batch: int, n_ubatch: int, fixed: int | None = None) -> None:
        """Set the limits; n_batch: tokens per step; n_ubatch: tokens computed at once;
        fixed: prompt tokens per step, regardless of time."""
        self.n_batch, self.n_ubatch, self.fixed = n_batch, n_ubatch, fixed
        self._steps: dict[int, float] = {}  # seconds of a step without prompts, by responses
        self._token = 0.0  # seconds per prompt token

    def piece(self, n_answers: int, share: float = 0.0) -> int:
        """Return the prompt tokens of the next step; a ubatch or more if no response is active.

        share  limit if another client waits for tokens: a multiple of a step without prompts
        """
        least = LEAST if n_answers else self.n_ubatch
        if self.fixed is not None:
            return self.fixed if n_answers else least
        if not self._token:
            return max(FIRST, least)
        step = self.step_seconds(n_answers)
        most = share * step if n_answers and share else max(SECONDS, TIMES * step)
        n = min(int(1.25 * most / self._token), self.n_batch)
        if n >= self.n_ubatch:
            return n - n % self.n_ubatch
        return max(2 ** (n.bit_length() - 1) if n else 0, least)

    def step_seconds(self, n_answers: int) -> float:
        """Return the measured seconds of a step with this number of responses and no prompt, or
        with the nearest measured number; 0 before any measurement."""
        fewer = [n for n in self._steps if n <= n_answers]
        nearest = max(fewer) if fewer else min(self._steps, default=0)
        return self._steps.get(nearest, 0.0)

    def saw(self, n_prompt: int, n_answers: int, seconds: float) -> None:
        """Update the measured times by a step. A small number of prompt tokens is ignored, as each
        takes longer."""
        if n_prompt >= LEAST:
            self._token = _minimum(self._token, seconds / (n_prompt + n_answers))
        elif not n_prompt:
            self._steps[n_answers] = _minimum(self._steps.get(n_answers, 0.0), seconds)


def _minimum(mean: float, newest: float) -> float:
    return mean + WEIGHT * (newest - mean) if 0 < mean < newest else newest


def shares(budget: int, wanted: Sequence[int], shortest: bool, whole: bool) -> list[int]:
    """Distribute a budget in order of arrival, each up to its wanted share.

    shortest  serve small shares first instead
    whole     only the first may get less than its wanted share, so that sizes repeat"""
    found = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i] if shortest else 0, i))
    for i in order:
        if i == order[0] or wanted[i] <= budget or not whole:
            found[i] = min(wanted[i], budget)
            budget -= found[i]
    return found
