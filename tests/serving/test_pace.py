"""How much of prompts is read while answers go on, and of which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_py.serving.prefill_budget import (
    FIRST,
    LEAST,
    SECONDS,
    SHARE,
    TIMES,
    PrefillBudget,
    shares,
)

BUILD = 0.08  # seconds that a graph of another size takes, once


def steps(pace: PrefillBudget, n_answers: int, token: float, fixed: float, n: int = 50) -> float:
    """Seconds of the last of n steps with prompts, of a model that takes `fixed` for a step."""
    seen: set[int] = set()
    seconds = 0.0
    for _ in range(n):
        n_prompt = pace.piece(n_answers)
        seconds = fixed + token * (n_prompt + n_answers)
        pace.saw(n_prompt, n_answers, seconds + (0 if n_prompt in seen else BUILD))
        seen.add(n_prompt)
    assert len(seen) < 8
    return seconds


def test_a_step_with_prompts_takes_about_as_long_as_it_may() -> None:
    pace = PrefillBudget(2048, 512)
    assert pace.piece(0) == 512  # nobody waits
    assert pace.piece(4) == FIRST
    pace.saw(0, 4, 0.02)
    seconds = steps(pace, 4, token=0.0012, fixed=0.02)
    assert 0.5 * SECONDS < seconds < 1.3 * SECONDS
    assert pace.piece(4) % 512 == 0
    pace.saw(17, 4, 50.0)  # once the machine did something else
    assert pace.piece(4) == LEAST
    assert 0.5 * SECONDS < steps(pace, 4, token=0.0012, fixed=0.02) < 1.3 * SECONDS
    steps(slower := PrefillBudget(2048, 512), 4, token=0.005, fixed=0.02)
    assert slower.piece(4) in (128, 256)


def test_of_a_model_whose_tokens_take_long_prompts_are_still_read() -> None:
    pace = PrefillBudget(2048, 512)
    pace.saw(0, 2, 1.0)
    seconds = steps(pace, 2, token=0.05, fixed=1.0)
    assert 0.5 * TIMES < seconds < 1.4 * TIMES
    steps(slow := PrefillBudget(2048, 512), 2, token=10.0, fixed=1.0)
    assert slow.piece(2) == LEAST  # never nothing


def test_of_a_model_that_is_quick_no_more_than_a_batch() -> None:
    pace = PrefillBudget(1000, 300)
    steps(pace, 1, token=1e-6, fixed=1e-4)
    assert pace.piece(1) == 900
    assert PrefillBudget(256, 256, 8).piece(1) == 8 and PrefillBudget(256, 256, 8).piece(0) == 256


def test_prompts_of_other_clients_take_less_of_a_step() -> None:
    pace = PrefillBudget(2048, 512)
    pace.saw(0, 4, 0.4)
    pace.saw(512, 4, 0.516)
    assert pace.piece(4) > 512
    assert 0.5 * SHARE * 0.4 < pace.piece(4, 2) * 0.001 <= 1.25 * SHARE * 0.4
    assert 0.125 * 0.4 < pace.piece(4, 5) * 0.001 <= 1.25 * 0.25 * 0.4
    assert pace.piece(0, 2) == pace.piece(0)


@pytest.mark.parametrize(("own", "share"), [(0, 0.25), (1, 0.125), (3, 0.125)])
def test_a_piece_of_minimum_size_delays_the_next_of_its_client(own: int, share: float) -> None:
    """Over many steps, prompts of one client take their share of the time, also of a model whose
    smallest piece takes longer than a step. Its own responses are a part of this share."""
    pace = PrefillBudget(2048, 512)
    pace.saw(0, 4, 0.02)
    pace.saw(512, 4, 2.0)
    prompts = answers = 0.0
    for _ in range(400):
        n = pace.piece(4, 5) * (not pace.owes("a"))
        assert not pace.owes("b")
        seconds = 0.004 * n
        pace.saw(n, 4, 0.02 + seconds, {"a": n} if n else {}, {"a": own, "b": 4 - own})
        prompts, answers = prompts + seconds, answers + 0.02
    assert 0.8 * share < prompts / answers <= 1.04 * share
    pace.saw(LEAST, 4, 1.0, {"a": LEAST})
    assert pace.owes("a")
    pace.piece(0, 5)  # no response waits
    assert not pace.owes("a")


def test_few_tokens_of_prompts_say_nothing() -> None:
    pace = PrefillBudget(2048, 512)
    steps(pace, 1, token=0.001, fixed=0.02)
    n = pace.piece(1)
    pace.saw(LEAST - 1, 0, 9.0)
    assert pace.piece(1) == n


@given(st.integers(1, 300), st.lists(st.integers(1, 400), max_size=9), st.booleans())
def test_prompts_share_a_step(budget: int, wanted: list[int], shortest: bool) -> None:
    found = shares(budget, wanted, shortest, whole=False)
    assert sum(found) == min(budget, sum(wanted))  # nothing is left over
    pairs = list(zip(wanted, found, strict=True))
    left = [n < w for w, n in (sorted(pairs, key=lambda p: p[0]) if shortest else pairs)]
    assert left == sorted(left)  # nobody gets what one before lacks


@given(st.integers(1, 300), st.lists(st.integers(1, 400), min_size=1, max_size=9), st.booleans())
def test_only_one_prompt_is_cut(budget: int, wanted: list[int], shortest: bool) -> None:
    found = shares(budget, wanted, shortest, whole=True)
    first = wanted.index(min(wanted)) if shortest else 0
    assert found[first] == min(wanted[first], budget) and sum(found) <= budget
    others = [(n, w) for i, (n, w) in enumerate(zip(found, wanted, strict=True)) if i != first]
    assert all(n in (0, w) for n, w in others)
    assert all(n == w or w > budget - sum(found) for n, w in others)
