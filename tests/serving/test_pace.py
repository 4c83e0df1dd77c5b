"""How much of prompts is read while answers go on, and of which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_py.serving.client_shares import LEAST_SHARE, SHARE, ClientShares
from llama_py.serving.prefill_budget import FIRST, LEAST, SECONDS, TIMES, PrefillBudget, shares

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
    for share in (0.5, 0.25):
        assert 0.5 * share * 0.4 < pace.piece(4, share) * 0.001 <= 1.25 * share * 0.4
    assert pace.piece(0, 0.5) == pace.piece(0)


def test_seconds_of_a_step_are_known_by_its_number_of_responses() -> None:
    pace = PrefillBudget(2048, 512)
    assert pace.step_seconds(3) == 0
    pace.saw(0, 4, 0.4)
    pace.saw(0, 6, 0.5)
    pace.saw(64, 6, 0.9)  # a step with prompts says nothing about steps without
    assert [pace.step_seconds(n) for n in (1, 4, 5, 6, 9)] == [0.4, 0.4, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(("n_clients", "share"), [(2, SHARE), (5, 0.25), (40, LEAST_SHARE)])
def test_a_client_adds_no_more_than_its_share_of_time(n_clients: int, share: float) -> None:
    """Whatever a client sends takes several steps' time; it then waits for as long as that is
    beyond its share."""
    shares = ClientShares()

    def added(n_steps: int, endless: str) -> float:
        """Return the part of the time that a client adds whose requests do not end."""
        total = others = 0.0
        for _ in range(n_steps):
            shares.begin(n_clients)
            if not shares.owes(endless):
                shares.charge(endless, 0.05)
                total += 0.05
            shares.charge("b", 0.0005)
            shares.pay({"b": 0.0195}, 0.02)
            others += 0.02
            assert not shares.owes("b")
        return total / others

    assert 0.75 * share < added(100, "a") <= 1.05 * share + 0.025  # the first charge is early
    added(5000, "a")
    assert 0.45 * share < added(1000, "a") < 0.7 * share  # it has added a lot lately
    assert 0.75 * share < added(100, "c") <= 1.05 * share + 0.025
    added(5000, "nobody")
    assert added(100, "a") > 0.7 * share  # and is forgotten
    while shares.owes("a"):
        shares.pay({}, 0.02)
    shares.charge("a", 0.019)
    assert shares.owes("a") and not shares.owes_step("a")
    shares.charge("a", 0.01)
    assert shares.owes_step("a")
    shares.begin(1)  # nobody else waits
    assert not shares.owes("a")


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
