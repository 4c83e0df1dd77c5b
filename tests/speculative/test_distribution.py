"""Tokens that are drawn at random have the same distribution with drafts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from llama_py.params import SamplingParams
from llama_py.sampler import Sampler
from tests.live_models import N_VOCAB, tokens
from tests.speculative.scripted import context, scripted

N_SEQ = 64
PARAMS = SamplingParams(seed=1, temp=1.0, top_k=4, min_p=0.0, top_p=1.0)
PROMPT = tokens(5)


Floats = NDArray[np.float64]


def after(name: str, texts: list[list[int]]) -> list[Floats]:
    """What the sampler draws from after each text: float64 [n_vocab]"""
    sampler, rows = Sampler(PARAMS, N_VOCAB), []
    ctx = context(name)
    for text in texts:
        ctx.clear()
        c = sampler.candidates(ctx.decode(text)[-1])
        row = np.zeros(N_VOCAB)
        row[c.ids] = c.probabilities()
        rows.append(row / row.sum())
    return rows


def chi_square(counts: Floats, expected: Floats) -> tuple[float, float]:
    """The statistic, and what it exceeds once in a thousand times (Wilson and Hilferty)."""
    order = np.argsort(-expected)
    n = int((expected >= 10).sum())  # the rare ones are counted together, with the rarest of those
    pairs = [*zip(counts[order[: n - 1]], expected[order[: n - 1]], strict=True)]
    pairs.append((counts[order[n - 1 :]].sum(), expected[order[n - 1 :]].sum()))
    df = len(pairs) - 1
    limit = df * (1 - 2 / (9 * df) + 3.09 * np.sqrt(2 / (9 * df))) ** 3
    return sum((n - e) ** 2 / e for n, e in pairs), limit


@pytest.mark.parametrize(("name", "rounds"), [("llama-dense", 12), ("qwen35moe-moe", 3)])
def test_tokens_that_are_drafted(name: str, rounds: int) -> None:
    """The second and the third token, with drafts that are right often but not always."""
    one = after(name, [PROMPT])[0]
    first = [int(id) for id in np.flatnonzero(one)]
    given_one = np.array(after(name, [[*PROMPT, id] for id in first]))
    two = one[first] @ given_one
    pairs = [(i, id, int(other)) for i, id in enumerate(first) for other in np.flatnonzero(two)]
    pairs = [(i, id, other) for i, id, other in pairs if given_one[i, other]]
    chances = np.array([one[id] * given_one[i, other] for i, id, other in pairs])
    three = chances @ np.array(after(name, [[*PROMPT, id, other] for _, id, other in pairs]))
    likely = dict(zip(first, given_one.argmax(1).tolist(), strict=True))
    last = int(np.argmax(three))
    sampler = Sampler(PARAMS, N_VOCAB)
    found = np.zeros((3, N_VOCAB))
    ctx = context(name, n_ctx=768, kv_unified=True, n_seq_max=N_SEQ, n_ubatch=256, n_rs_seq=2)
    with scripted(ctx, lambda r: [likely.get(int(r.ids[-1]), 0), last]) as made:
        for _ in range(rounds):
            ctx.clear()
            for s in range(N_SEQ):
                made.start(s, PROMPT)
            texts: list[list[int]] = [[] for _ in range(N_SEQ)]
            while open := [s for s in range(N_SEQ) if len(texts[s]) < 3]:
                made.advance(open)
                for s in open:
                    while made.has_rows(s) and len(texts[s]) < 3:
                        texts[s].append(made.take(s, sampler.sample)[0])
            for s, text in enumerate(texts):
                made.finish(s)
                found[range(3), text] += 1
        assert made.statistics["ngram-simple"].rate_at[0] > 0.15
    for counts, share in zip(found, (one, two, three), strict=True):
        statistic, limit = chi_square(counts, share * N_SEQ * rounds)
        assert statistic < limit
