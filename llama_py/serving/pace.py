"""How much of prompts is read in a step in which answers go on too: these must not stumble."""

from __future__ import annotations

from collections.abc import Sequence

SECONDS = 0.1  # that such a step may take,
TIMES = 4.0  # or as much longer than a step of answers only: prompts of large models need it
FIRST = 64  # tokens, before anything is known
LEAST = 16
WEIGHT = 0.2  # in a mean, of a step that took longer; one that took less counts whole


class Pace:
    """Learns from steps how long a token takes.

    Pieces are powers of two: each other number of tokens is another graph, which takes as long to
    build as some tens of tokens to compute. That is also why a step that took long says little.
    """

    def __init__(self, n_max: int, fixed: int | None = None) -> None:
        """n_max: tokens that a step has room for; fixed: tokens of a piece, whatever they take."""
        self.n_max, self.fixed = n_max, fixed
        self._answers = 0.0  # seconds of a step without prompts
        self._token = 0.0  # seconds of a token, in steps with prompts and answers

    def piece(self, n_answers: int) -> int:
        """Tokens of prompts of the next step; all there is room for, if there are no answers."""
        if not n_answers:
            return self.n_max
        room = max(self.n_max - n_answers, 1)
        if self.fixed is not None:
            return min(self.fixed, room)
        if not self._token:
            return min(FIRST, room)
        n = max(SECONDS, TIMES * self._answers) / self._token - n_answers
        piece = LEAST
        while piece * 2 <= min(n * 1.25, room):
            piece *= 2
        return min(piece, room)

    def saw(self, n_prompt: int, n_answers: int, seconds: float) -> None:
        """What a step took. Prompts alone say nothing: of many tokens each takes less."""
        if not n_answers:
            return
        if n_prompt:
            self._token = _least(self._token, seconds / (n_prompt + n_answers))
        else:
            self._answers = _least(self._answers, seconds)


def _least(mean: float, newest: float) -> float:
    return mean + WEIGHT * (newest - mean) if 0 < mean < newest else newest


def shares(budget: int, wanted: Sequence[int], shortest: bool, whole: bool) -> list[int]:
    """How much of a budget each gets, who came first before who came later: what it wants.

    shortest  those that want little come first instead
    whole     only the first gets less than it wants: rests are no numbers that come again
    """
    found = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i] if shortest else 0, i))
    for i in order:
        if i == order[0] or wanted[i] <= budget or not whole:
            found[i] = min(wanted[i], budget)
            budget -= found[i]
    return found
