"""Marks for the common beginnings of one request's prompts (`Request.marks`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from llama_py.decoding.prefix_cache.tree import common
from llama_py.serving.request import Request

N_SHARED = 32  # common prefix worth waiting for while another slot processes it
MAX_MARKS = 4  # per prompt and direction


def mark_beginnings(requests: Sequence[Request]) -> list[list[int] | None]:
    """Return marks for the common beginnings of prompts; None for a prompt without one.

    Recurrent states can only be reused at a mark. The first of the prompts is processed before the
    engine sees the others, so it needs the marks in advance.
    """
    prompts = [list(one.prompt) for one in requests]
    found = [set[int]() for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    lengths = [common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    for places, shared in ((order, lengths), (order[::-1], lengths[::-1])):
        before = list[int]()  # lengths in common with earlier prompts
        for i, n in zip(places[1:], shared, strict=True):
            before = sorted({min(n, m) for m in (*before, n) if m >= N_SHARED <= n})[-MAX_MARKS:]
            found[i].update(before)
    return [_marks(one, ns) if ns else None for one, ns in zip(requests, found, strict=True)]


def _marks(request: Request, lengths: set[int]) -> list[int]:
    """Return the marks of a prompt; lengths: tokens that it shares with other prompts.

    A scored prompt continues one token earlier: its logits score the first different token.
    """
    if request.prompt_logprobs is not None:
        return sorted(n - 1 for n in lengths)
    return sorted({*lengths, len(request.prompt) - 1})
