"""Number of prompt tokens in a step that also generates tokens, so that responses stay smooth."""

from __future__ import annotations

from collections.abc import Sequence

SECONDS = 1.0  # that answers may wait for prompts in a step,
TIMES = 4.0  # or as much longer than they take themselves: prompts of large models need it
FIRST = 64  # tokens, before anything is known
LEAST = 16
WEIGHT = 0.2  # in a mean, of a step that took longer; one that took less counts whole


class Pace:
    """Learns from steps how long a token takes.

    However prompts are cut, answers wait for all of them. In large pieces they are read sooner,
    fewer tokens of answers come late, and fewer graphs are built: each other number of tokens is
    another one, and takes as long to build as some tens of tokens to compute. So a prompt is read
    at once, but where that would take too long. Where one is cut, its pieces are whole ubatches,
    or powers of two.
    """

    def __init__(self, n_batch: int, n_ubatch: int, fixed: int | None = None) -> None:
        """Set the limits; n_batch: tokens per step; n_ubatch: tokens computed at once;
        fixed: prompt tokens per step, whatever time they take."""
        self.n_batch, self.n_ubatch, self.fixed = n_batch, n_ubatch, fixed
        self._answers = 0.0  # seconds of a step without prompts
        self._token = 0.0  # seconds of a token of prompts

    def piece(self, n_answers: int) -> int:
        """Return the prompt tokens of the next step; at least a ubatch if nothing is generated."""
        least = LEAST if n_answers else self.n_ubatch
        if self.fixed is not None:
            return self.fixed if n_answers else least
        if not self._token:
            return max(FIRST, least)
        n = min(int(1.25 * max(SECONDS, TIMES * self._answers) / self._token), self.n_batch)
        if n >= self.n_ubatch:
            return n - n % self.n_ubatch
        return max(2 ** (n.bit_length() - 1) if n else 0, least)

    def saw(self, n_prompt: int, n_answers: int, seconds: float) -> None:
        """Update the measured times by a step. Few prompt tokens are ignored, as they take longer
        each."""
        if n_prompt >= LEAST:
            self._token = _least(self._token, seconds / (n_prompt + n_answers))
        elif not n_prompt:
            self._answers = _least(self._answers, seconds)


def _least(mean: float, newest: float) -> float:
    return mean + WEIGHT * (newest - mean) if 0 < mean < newest else newest


def shares(budget: int, wanted: Sequence[int], shortest: bool, whole: bool) -> list[int]:
    """Distribute a budget in order of arrival, each up to its wanted share.

    shortest  small shares come first instead
    whole     only the first may get less than it wants, so that sizes repeat"""
    found = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i] if shortest else 0, i))
    for i in order:
        if i == order[0] or wanted[i] <= budget or not whole:
            found[i] = min(wanted[i], budget)
            budget -= found[i]
    return found
