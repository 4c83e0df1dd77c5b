"""Sequences of a context, and the choice of one for a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llama_py.decoding.prefix_cache.tree import common

if TYPE_CHECKING:
    from llama_py.serving.job import Job

N_LOST = 16  # tokens at its end that a sequence may lose and still goes on where it stands
State = Literal["idle", "prompt", "answer"]


@dataclass(slots=True)
class Slot:
    """A sequence of the context.

    job     what it answers;  used  when it ended the last, in steps; -1: never
    n_held  tokens that the memory has of it, when that was last looked at
    """

    id: int
    job: Job | None = None
    used: int = -1
    n_held: int = 0


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """State of a slot (llama-server's /slots).

    id_request  `Handle.id` of its request, -1 if it is idle
    n_prompt, n_done, n_gen  as of `Timings`
    n_left      tokens of the answer that may still come, -1 for any number
    n_held      tokens that the memory has of it
    """

    id: int
    state: State
    id_request: int = -1
    n_prompt: int = 0
    n_done: int = 0
    n_gen: int = 0
    n_left: int = 0
    n_held: int = 0


def chosen(free: Sequence[Slot], held: Sequence[Sequence[int]], ids: Sequence[int]) -> Slot:
    """Choose the free slot (there is one) that answers a prompt: that which goes on where it
    stands, with most of the prompt; else an empty one, or that which was not used for longest:
    whatever others hold can be had from there too, and they keep it.

    held  the tokens of each
    """
    n_same = [common(tokens, ids) for tokens in held]
    left = [len(tokens) - n for tokens, n in zip(held, n_same, strict=True)]
    going_on = [i for i, n in enumerate(n_same) if n and left[i] <= N_LOST]
    if going_on:
        return free[max(going_on, key=lambda i: (n_same[i], -i))]
    return free[min(range(len(free)), key=lambda i: (len(held[i]) > 0, free[i].used, i))]
