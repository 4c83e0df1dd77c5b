"""Sequences of a context, and the choice of one for a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llama_py.decoding.prefix_cache.tree import common

if TYPE_CHECKING:
    from llama_py.serving.job import Job

N_LOST = 16  # tokens that a sequence may lose at its end and still be continued in place
State = Literal["idle", "prompt", "answer"]


@dataclass(slots=True)
class Slot:
    """A sequence of the context.

    job     current job;  used  step number when its last job ended, -1: never
    n_held  tokens in memory, at the last check
    """

    id: int
    job: Job | None = None
    used: int = -1
    n_held: int = 0


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


def choose_slot(free: Sequence[Slot], held: Sequence[Sequence[int]], ids: Sequence[int]) -> Slot:
    """Choose a free slot (at least one exists) for a prompt.

    First choice: the slot with the longest common prefix, if at most N_LOST tokens after it are
    lost. Else an empty slot, or the least recently used one: it can copy prefixes of other slots.

    held  tokens of each free slot
    """
    n_same = [common(tokens, ids) for tokens in held]
    left = [len(tokens) - n for tokens, n in zip(held, n_same, strict=True)]
    going_on = [i for i, n in enumerate(n_same) if n and left[i] <= N_LOST]
    if going_on:
        return free[max(going_on, key=lambda i: (n_same[i], -i))]
    return free[min(range(len(free)), key=lambda i: (len(held[i]) > 0, free[i].used, i))]
