"""Who is computed together in a step, and how much of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llama_py.serving.job import Job
from llama_py.serving.pace import Pace, shares
from llama_py.serving.slots import Slot

Busy = tuple[Slot, Job]
Group = tuple[list[Busy], dict[int, int]]


class Turns:
    """How the jobs of a step come in groups; each is one batch.

    mixes  a ubatch may have more tokens of one sequence than of another: then all are one group
    """

    def __init__(self, pace: Pace, mixes: bool) -> None:
        self.pace, self.mixes = pace, mixes

    def groups(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        """Jobs, and how many tokens of the prompts among them are computed at most, by slot. A
        group is looked for once the one before it is computed.

        shortest  the shortest prompt is read first, else the one that came first
        """
        if self.mixes or len(busy) == 1:
            yield from self._all(busy, shortest)
        else:
            yield from self._apart(busy, shortest)

    def _all(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        n_answers, budget = self._budget(busy)
        if budget >= self.pace.n_ubatch:  # whole ubatches, of both together
            budget = max(budget - n_answers, 1)
        pieces = _pieces(busy, 0, budget, shortest, n_answers > 0)
        group = [one for one in busy if not one[1].reads or pieces.get(one[0].id)]
        if group:  # else all stand at images
            yield group, pieces

    def _apart(self, busy: Sequence[Busy], shortest: bool) -> Iterator[Group]:
        """A prompt is read by itself, all but its last token, which comes with the answers: the
        graph of these is the same whether somebody reads or not."""
        pieces = _pieces(busy, 1, self._budget(busy)[1], shortest, True)
        for slot, job in sorted(busy, key=lambda one: one[1].id):
            end, before = job.reads - pieces.get(slot.id, 0), -1
            while slot.job is job and end < job.reads != before:
                before = job.reads
                yield [(slot, job)], {slot.id: job.reads - end}
        group = [one for one in busy if one[1].reads == 0 or one[1].reads == one[1].n_ahead == 1]
        if group:
            yield group, {}

    def _budget(self, busy: Sequence[Busy]) -> tuple[int, int]:
        """How many answers there are, and how many tokens of prompts are read beside them."""
        n_answers = sum(not job.reads for _, job in busy)
        return n_answers, self.pace.piece(n_answers)


def _pieces(
    busy: Sequence[Busy], n_kept: int, budget: int, shortest: bool, whole: bool
) -> dict[int, int]:
    """What of each prompt is read, by slot; n_kept tokens at its end are not."""
    prompts = {
        slot.id: n
        for slot, job in sorted(busy, key=lambda one: one[1].id)
        if job.reads and (n := min(job.n_ahead, job.reads - n_kept))
    }
    found = shares(budget, [*prompts.values()], shortest, whole)
    return {id: n for id, n in zip(prompts, found, strict=True) if n}
