"""A way to draft that does as it is told, and texts to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from llama_py.batch import F32
from llama_py.context import Context
from llama_py.decoding.drafting import drafts
from llama_py.decoding.drafting.drafter import Drafter, DraftRequest
from llama_py.decoding.speculator import Speculator
from llama_py.params.speculative import SpeculativeParams
from tests.support.live_models import EXACT, N_VOCAB, live, tokens

N_MAX = 8
Script = Callable[[DraftRequest], list[int]]


class Scripted(Drafter):
    """script   what it drafts; accepted  what it was told of that"""

    script: Script
    accepted: list[int]

    @classmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        return N_MAX

    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        return {r.seq_id: type(self).script(r) for r in requests}

    def accept(self, seq_id: int, n_accepted: int, mine: bool) -> None:
        self.accepted.append(n_accepted)


@contextmanager
def scripted(ctx: Context, script: Script) -> Iterator[Speculator]:
    """A speculator whose only way to draft is the script."""
    kind = type("Scripted", (Scripted,), {"script": staticmethod(script), "accepted": []})
    with (
        mock.patch.object(drafts, "drafter", lambda _: kind),
        Speculator(ctx, spec_type="ngram-simple", spec_draft_adaptive=False) as made,
    ):
        yield made


def greedy(row: F32) -> int:
    return int(np.argmax(row))


def context(name: str, **options: Any) -> Context:
    return Context(live(name, "cpu"), **{**EXACT, **options})


@cache
def plain(name: str, n: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """A prompt, and the n tokens that follow it one by one."""
    ctx, prompt = context(name), tokens(9 + seed, seed)
    logits = ctx.decode(prompt)[-1]
    answer: list[int] = []
    while len(answer) < n:
        answer.append(greedy(logits))
        logits = ctx.decode(answer[-1:])[-1]
    return prompt, answer


def wrong_at(texts: Mapping[int, Sequence[int]], n: int) -> Script:
    """Drafts of n tokens of these texts of sequences, wrong from a place that moves on: the first
    draft at its first token, and so on; then one that is right."""
    turn: dict[int, int] = {}

    def script(r: DraftRequest) -> list[int]:
        at = turn[r.seq_id] = turn.get(r.seq_id, -1) + 1
        guess = list(texts[r.seq_id][r.ids.size : r.ids.size + n])
        right = at % (n + 1)
        return [*guess[:right], *((id + 1) % N_VOCAB for id in guess[right:])]

    return script


def run(made: Speculator, prompts: Mapping[int, Sequence[int]], n: int) -> dict[int, list[int]]:
    """Greedy answers of n tokens or a few more, all sequences in the same batches."""
    answers: dict[int, list[int]] = {}
    for seq_id, prompt in prompts.items():
        made.extend(seq_id, prompt)
        answers[seq_id] = []
    while open := [s for s in prompts if len(answers[s]) < n]:
        made.advance(open)
        for seq_id in open:
            while made.has_rows(seq_id):
                answers[seq_id].append(made.take(seq_id, greedy)[0])
    for seq_id in prompts:
        made.finish(seq_id)
    return answers
