"""Number of prompt tokens in a step that also generates tokens, which keeps responses smooth."""

from __future__ import annotations

from collections.abc import Sequence

SECONDS = 1.0  # limit of a step's prompt time,
TIMES = 4.0  # or this multiple of a step without prompts: large models need it
SHARE = 0.5  # the only limit if other clients wait for tokens: a multiple of such a step
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
        self._answers = 0.0  # seconds of a step without prompts
        self._token = 0.0  # seconds per prompt token

    def piece(self, n_answers: int, several: bool = False) -> int:
        """Return the prompt tokens of the next step; a ubatch or more if no response is active.

        several  the prompts and the responses are of several clients
        """
        least = LEAST if n_answers else self.n_ubatch
        if self.fixed is not None:
            return self.fixed if n_answers else least
        if not self._token:
            return max(FIRST, least)
        most = max(SECONDS, TIMES * self._answers)
        if several and n_answers:
            most = SHARE * self._answers
        n = min(int(1.25 * most / self._token), self.n_batch)
        if n >= self.n_ubatch:
            return n - n % self.n_ubatch
        return max(2 ** (n.bit_length() - 1) if n else 0, least)

    def saw(self, n_prompt: int, n_answers: int, seconds: float) -> None:
        """Update the measured times by a step. A small number of prompt tokens is ignored, as each
        takes longer."""
        if n_prompt >= LEAST:
            self._token = _least(self._token, seconds / (n_prompt + n_answers))
        elif not n_prompt:
            self._answers = _least(self._answers, seconds)


def _least(mean: float, newest: float) -> float:
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
