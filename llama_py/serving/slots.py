"""Sequences of a context, and the choice of one for a request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llama_py.decoding.prefix_cache.tree import common

if TYPE_CHECKING:
    from llama_py.serving.job import Job

N_LOST = 16  # tokens that a sequence may lose at its end and still be continued in place
N_KEPT = 64  # steps during which other clients avoid the slot of a finished job
State = Literal["idle", "prompt", "answer"]


@dataclass(slots=True)
class Slot:
    """A sequence of the context.

    job     current job;  used  step number when its last job ended, -1: never
    n_held  tokens in memory, at the last check
    client  name of the client of its last job
    """

    id: int
    job: Job | None = None
    used: int = -1
    n_held: int = 0
    client: str = ""

    def info(self) -> SlotInfo:
        """Return its state; safe to call from any thread."""
        if (job := self.job) is None:
            return SlotInfo(self.id, "idle", n_held=self.n_held)
        t = job.answer.timings
        state: State = "prompt" if job.reads else "answer"
        return SlotInfo(
            self.id, state, job.id, t.n_prompt, t.n_done, t.n_gen, job.answer.n_left, self.n_held
        )


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """State of a slot (llama-server's /slots).

    id_request  `Handle.id` of its request, -1 if it is idle
    n_prompt, n_done, n_gen  like `Timings`
    n_left      maximum number of further tokens, -1: no limit
    n_held      tokens in memory
    """

    id: int
    state: State
    id_request: int = -1
    n_prompt: int = 0
    n_done: int = 0
    n_gen: int = 0
    n_left: int = 0
    n_held: int = 0


def choose_slot(
    free: Sequence[Slot],
    held: Sequence[Sequence[int]],
    ids: Sequence[int],
    client: str = "",
    busy: Collection[int] = (),
    step: int = 0,
) -> Slot:
    """Choose a free slot (at least one exists) for a prompt.

    First choice: the slot with the longest common prefix, if at most N_LOST tokens after it are
    lost. Second choice: the slot that makes the fewest runs of consecutive busy slots, because a
    ubatch has consecutive sequences and every ubatch reads all weights. Third choice: the first
    empty slot, since some graphs are for certain slots, or the least recently used one, which can
    copy prefixes of other slots. Slots that another
    client used during the last N_KEPT steps have the lowest priority, because it may continue.

    held    tokens of each free slot
    client  name of the prompt's client
    busy    ids of busy slots, if sequences of a ubatch must be consecutive
    step    number of the current step
    """
    n_same = [common(tokens, ids) for tokens in held]
    left = [len(tokens) - n for tokens, n in zip(held, n_same, strict=True)]
    going_on = [i for i, n in enumerate(n_same) if n and left[i] <= N_LOST]
    if going_on:
        return free[max(going_on, key=lambda i: (n_same[i], -i))]

    def cost(i: int) -> tuple[int, ...]:
        slot, is_full = free[i], len(held[i]) > 0
        is_kept = is_full and slot.client != client and slot.used > step - N_KEPT
        n_runs = _n_runs({*busy, slot.id}) if busy else 0
        return is_kept, n_runs, is_full, is_full and slot.client != client, is_full * slot.used, i

    return free[min(range(len(free)), key=cost)]


def _n_runs(ids: Collection[int]) -> int:
    """Return the number of runs of consecutive ids."""
    return sum(id + 1 not in ids for id in ids)
