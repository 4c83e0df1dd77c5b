"""The chain leaves and draws what llama.cpp's does, of the same logits (tests/data/README.md)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dev.record.golden import sampling
from llama_py.sampler import Candidates, Sampler
from llama_py.tokenizer import Tokenizer, load_tokenizer

LOADED = sampling.load()
INPUTS = {name: np.array(row, np.float32) for name, row in LOADED["inputs"].items()}


@cache
def vocabulary() -> Tokenizer:
    return load_tokenizer(sampling.VOCABULARY)


def sampler_of(case: str, n_vocab: int) -> Sampler:
    needs = case in sampling.OF_A_VOCABULARY
    made = Sampler(sampling.params(case), n_vocab, vocabulary() if needs else None)
    for id in sampling.TEXT:
        made.accept(id % n_vocab)
    return made


def same(c: Candidates, expected: dict[str, Any], tied: bool) -> None:
    """Of candidates that are equally likely, any may be the one that is kept."""
    p = np.exp((c.logits - c.max()).astype(np.float64))
    seen = sampling.Seen.of(c.ids, p / p.sum())
    assert seen.n == expected["n"]
    np.testing.assert_allclose(seen.p, expected["p"], rtol=0, atol=1e-6)
    if not tied:
        assert (seen.ids, seen.sum) == (expected["ids"], expected["sum"])
        return
    ours, theirs = (
        dict(zip(ids, p, strict=True))
        for ids, p in ((seen.ids, seen.p), (expected["ids"], expected["p"]))
    )
    only_ours = sorted(p for id, p in ours.items() if id not in theirs)
    only_theirs = sorted(p for id, p in theirs.items() if id not in ours)
    np.testing.assert_allclose(only_ours, only_theirs, rtol=0, atol=1e-6)
    for id in ours.keys() & theirs.keys():
        assert ours[id] == pytest.approx(theirs[id], abs=1e-6)


@pytest.mark.parametrize(("case", "name"), sampling.pairs())
def test_as_recorded(case: str, name: str) -> None:
    logits, expected = INPUTS[name], LOADED["results"][f"{case}/{name}"]
    sampler, tied = sampler_of(case, logits.size), name in sampling.TIED
    same(sampler.clone().candidates(logits), expected["first"], tied)
    if tied:
        return
    drawn = []
    for left in range(len(expected["drawn"]), 0, -1):
        if left == 1:
            same(sampler.clone().candidates(logits), expected["last"], tied)
        drawn.append(sampler.sample(logits))
        sampler.accept(drawn[-1])
    assert drawn == expected["drawn"]
