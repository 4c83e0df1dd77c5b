"""Number of prompt tokens in a step that also generates tokens, which keeps responses smooth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SECONDS = 1.0  # limit of a step's prompt time,
TIMES = 4.0  # or this multiple of a step without prompts: large models need it
SHARE = 0.5  # the only limit if another client waits for tokens: a multiple of such a step
LEAST_SHARE = 0.125  # the same with many clients: each has an equal part of the time
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
        self._share = 0.0  # of the next step; 0: prompts and responses are of one client
        self._debts: dict[str, float] = {}  # seconds beyond a client's share

    def piece(self, n_answers: int, n_clients: int = 1) -> int:
        """Return the prompt tokens of the next step; a ubatch or more if no response is active.

        n_clients  number of clients of the prompts and the responses
        """
        several = n_answers > 0 and n_clients > 1
        self._share = max(min(SHARE, 1 / max(n_clients - 1, 1)), LEAST_SHARE) if several else 0
        if not several:
            self._debts.clear()
        least = LEAST if n_answers else self.n_ubatch
        if self.fixed is not None:
            return self.fixed if n_answers else least
        if not self._token:
            return max(FIRST, least)
        most = max(SECONDS, TIMES * self._answers)
        if several:
            most = self._share * self._answers
        n = min(int(1.25 * most / self._token), self.n_batch)
        if n >= self.n_ubatch:
            return n - n % self.n_ubatch
        return max(2 ** (n.bit_length() - 1) if n else 0, least)

    def owes(self, client: str) -> bool:
        """Return True if this client's prompts took more than their share of the last steps.

        A piece has a minimum size, which may take longer than a step's share: further pieces then
        wait until responses have had their part."""
        return client in self._debts

    def saw(
        self,
        n_prompt: int,
        n_answers: int,
        seconds: float,
        by: Mapping[str, int] | None = None,
        answers: Mapping[str, int] | None = None,
    ) -> None:
        """Update the measured times by a step. A small number of prompt tokens is ignored, as each
        takes longer.

        by       prompt tokens by client
        answers  responses by client
        """
        if self._share:
            self._charge(
                by or {}, n_prompt, max(seconds - self._answers, 0) if n_answers else seconds
            )
            self._pay(answers or {}, n_answers)
        if n_prompt >= LEAST:
            self._token = _minimum(self._token, seconds / (n_prompt + n_answers))
        elif not n_prompt:
            self._answers = _minimum(self._answers, seconds)

    def _charge(self, by: Mapping[str, int], n_prompt: int, seconds: float) -> None:
        for client, n in by.items():
            self._debts[client] = self._debts.get(client, 0) + seconds * n / n_prompt

    def _pay(self, answers: Mapping[str, int], n_answers: int) -> None:
        """Reduce debts by each client's share of a step. Its own responses are a part of this
        share, at most half of it."""
        left = dict[str, float]()
        for client, debt in self._debts.items():
            own = min(answers.get(client, 0) / max(n_answers, 1), self._share / 2)
            paid = (self._share - own) * self._answers if n_answers else 0.0
            if debt > paid:
                left[client] = debt - paid
        self._debts = left


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
