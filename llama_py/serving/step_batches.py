"""Batches of a step: the jobs computed together, and their prompt tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from llama_py.serving.client_shares import ClientShares
from llama_py.serving.job import Job
from llama_py.serving.prefill_budget import PrefillBudget, shares
from llama_py.serving.slots import Slot

SHORTEST = 4  # every n-th step serves the shortest prompt, the others serve the first
SHORTEST_OF_CLIENTS = 2  # the same with several clients

Busy = tuple[Slot, Job]
Group = tuple[list[Busy], dict[int, int]]


def n_clients(busy: Iterable[Busy]) -> int:
    """Return the number of clients of these jobs."""
    return len({job.request.client for _, job in busy})


def share_rows(busy: Iterable[Busy], most: int) -> dict[int, int]:
    """Return how many tokens of each prompt to process with logits, by slot; at most `most`. The
    oldest prompts are first; a job that must be alone, is."""
    found, ordered = {}, sorted(busy, key=lambda one: one[1].id)
    alone = [one for one in ordered if one[1].alone][:1]
    for slot, job in alone or ordered:
        if n := min(len(job.request.prompt) - 1 - job.pos, most):
            found[slot.id] = n
            most -= n
    return found


class StepBatches:
    """Grouping of a step's jobs into batches.

    unequal  a ubatch may have unequal numbers of tokens per sequence: then all are one group
    """

    def __init__(self, pace: PrefillBudget, unequal: bool) -> None:
        self.pace, self.unequal = pace, unequal
        self.shares = ClientShares()

    def begin(self, step: int, busy: Sequence[Busy]) -> bool:
        """Begin a step; return True if it processes the shortest prompt first, not the oldest."""
        n = n_clients(busy)
        self.shares.begin(n if any(not job.reads for _, job in busy) else 1)
        return step % (SHORTEST_OF_CLIENTS if n > 1 else SHORTEST) == 0

    def groups(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        """Yield groups of jobs, and the maximum number of prompt tokens by slot. Each group is
        determined after the one before it was computed.

        shortest  process the shortest prompt first, else the oldest (`begin`)"""
        if self.unequal or len(busy) == 1:
            yield from self._joint(busy, shortest)
        else:
            yield from self._separate(busy, shortest)

    def saw(
        self,
        busy: Sequence[Busy],
        pieces: Mapping[int, int],
        seconds: float,
        sampling: Mapping[str, float],
    ) -> None:
        """Update the measured times by a batch. Charge each client for its prompts, its responses
        and the sampling of its tokens.

        pieces    prompt tokens in the batch, by slot
        sampling  CPU seconds by client, after the batch: clients do not pay for waits
        """
        by, answers = Counter[str](), Counter[str]()
        for slot, job in busy:
            by[job.request.client] += pieces.get(slot.id, 0)
            answers[job.request.client] += slot.id not in pieces
        n_answers, n_prompt = len(busy) - len(pieces), sum(pieces.values())
        self.pace.saw(n_prompt, n_answers, seconds)
        step = self.pace.step_seconds(n_answers) if n_answers else 0
        without = {
            client: self.pace.step_seconds(n_answers - n)
            for client, n in answers.items()
            if n < n_answers
        }
        for client, n in by.items():
            added = step - without[client] if client in without and answers[client] else 0
            prompts = max(seconds - step, 0) * n / n_prompt if n else 0
            self.shares.charge(client, max(added, 0) + prompts + sampling.get(client, 0))
        if n_answers:
            total = sum(sampling.values())
            rest = {name: s + total - sampling.get(name, 0) for name, s in without.items()}
            self.shares.pay(rest, step + total)

    def charge(self, busy: Sequence[Busy], pieces: Mapping[int, int], seconds: float) -> None:
        """Charge each client for its prompt tokens in a batch without responses.

        pieces  prompt tokens in the batch, by slot
        """
        n = sum(pieces.values())
        for slot, job in busy:
            self.shares.charge(job.request.client, seconds * pieces.get(slot.id, 0) / max(n, 1))

    def find_payers(self, busy: Iterable[Busy]) -> list[Busy]:
        """Return the jobs of clients without debts: their prompts may be processed."""
        return [one for one in busy if not self.shares.owes(one[1].request.client)]

    def _joint(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        n_answers, budget = self.budget(busy)
        if budget >= self.pace.n_ubatch:  # whole ubatches, with responses and prompts
            budget = max(budget - n_answers, 1)
        pieces = self._pieces(busy, 0, budget, shortest, n_answers > 0)
        answers = self._drop_debtors([one for one in busy if not one[1].reads])
        group = [one for one in busy if pieces.get(one[0].id) or one in answers]
        if group:  # empty if all jobs wait for images
            yield group, pieces

    def _separate(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        """Yield prompts separately, except their last tokens, which join the responses' batch: its
        graph is then the same with and without prompts."""
        pieces = self._pieces(busy, 1, self.budget(busy)[1], shortest, True)
        for slot, job in sorted(busy, key=lambda one: one[1].id):
            end, before = job.n_left - pieces.get(slot.id, 0), -1
            while slot.job is job and end < job.n_left != before:
                before = job.n_left
                yield [(slot, job)], {slot.id: job.n_left - end}
        group = [one for one in busy if one[1].n_left == 0 or one[1].n_left == one[1].n_ahead == 1]
        if group:
            yield self._drop_debtors(group), {}

    def _drop_debtors(self, answers: list[Busy]) -> list[Busy]:
        """Return the jobs of clients that do not owe a step; all jobs if every client does."""
        owes = self.shares.owes_step
        return [one for one in answers if not owes(one[1].request.client)] or answers

    def budget(self, busy: Sequence[Busy]) -> tuple[int, int]:
        """Return the numbers of responses and of prompt tokens in their batch."""
        n_answers = sum(not job.reads for _, job in busy)
        return n_answers, self.pace.piece(n_answers, self.shares.share)

    def _pieces(
        self, busy: Sequence[Busy], n_kept: int, budget: int, shortest: bool, whole: bool
    ) -> dict[int, int]:
        """Return how many entries of each prompt to process, by slot, leaving n_kept at its end."""
        prompts = {
            slot.id: n
            for slot, job in sorted(self.find_payers(busy), key=lambda one: one[1].id)
            if job.reads and (n := min(job.n_ahead, job.n_left - n_kept))
        }
        found = shares(budget, [*prompts.values()], shortest, whole)
        return {id: n for id, n in zip(prompts, found, strict=True) if n}
