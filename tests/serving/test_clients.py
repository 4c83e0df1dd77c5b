"""Clients share the slots of an engine."""

from __future__ import annotations

from typing import Any

import pytest

from llama_py.serving import Engine, scheduler
from llama_py.serving.answer import Answer
from llama_py.serving.client_shares import SHARE
from llama_py.serving.job import Job
from llama_py.serving.slots import Slot
from tests.serving.engines import (
    WAIT,
    Asked,
    alone,
    ask,
    ask_all,
    engine,
    held,
    note_charges,
    request,
    stall,
)
from tests.support.live_models import tokens


class Noted(Asked):
    """Notes when its request gets its first token, or every token."""

    def __init__(self, name: str, order: list[str], every: bool = False) -> None:
        super().__init__()
        self.name, self.order, self.every = name, order, every

    def __call__(self, event: object) -> None:
        if (self.every or not self.tokens) and getattr(event, "token", None) is not None:
            self.order.append(self.name)
        super().__call__(event)  # type: ignore[arg-type]


def order_of(made: Engine, clients: str) -> list[str]:
    """Submit a request of each client at once, and return the order of their first tokens."""
    order: list[str] = []
    asked = [Noted(client, order) for client in clients]
    with held(made, 0):
        for i, one in enumerate(asked):
            one.handle = made.submit(request([i + 1, 2, 3], 4, client=one.name), one)
    for one in asked:
        assert one.handle is not None and one.handle.wait(WAIT)
        assert len(one.tokens) == 4
    return order


def test_clients_take_turns() -> None:
    with engine("llama-dense", n_seq_max=1, n_ctx=256) as made:
        order = order_of(made, "aaaabbc")
    assert sorted(order) == sorted("aaaabbc")
    # The first request begins before the others are submitted.
    assert order[:3] == ["a", "b", "c"], order


def test_a_client_uses_its_number_of_slots() -> None:
    with engine("llama-dense", client_slots=2) as made:
        most: list[int] = []

        class Counted(Asked):
            def __call__(self, event: object) -> None:
                most.append(sum(slot.state != "idle" for slot in made.slots()))
                super().__call__(event)  # type: ignore[arg-type]

        asked = [Counted() for _ in range(5)]
        for i, one in enumerate(asked):
            one.handle = made.submit(request([i + 1, 2, 3], 6, client="a"), one)
        for one in asked:
            assert one.handle is not None and one.handle.wait(WAIT)
    assert max(most) == 2


@pytest.mark.parametrize(("clients", "expected"), [("aa", 0), ("ab", SHARE)])
def test_steps_know_the_share_of_clients(clients: str, expected: float) -> None:
    """It decides how many prompt tokens a step may take."""
    seen: set[float] = set()
    with engine("llama-dense") as made:
        budget = made._scheduler._pace
        piece = budget.piece

        def noted(n_answers: int, share: float = 0.0) -> int:
            seen.add(share)
            return piece(n_answers, share)

        budget.piece = noted  # type: ignore[method-assign]
        order_of(made, clients)
    assert max(seen) == expected


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_responses_of_a_client_that_owes_a_step_wait(name: str) -> None:
    """They continue as soon as no other client has a response, and are the same."""
    order: list[str] = []
    with engine(name, kv_unified=False) as made:
        shares = made._scheduler._turns.shares
        shares.owes_step = lambda client: client == "a" and shares.share > 0  # type: ignore[method-assign]
        go_on = stall(made)
        first = ask(made, request([1], 2, client="c"))
        asked = [Noted(client, order, every=True) for client in "abb"]
        with made._changed:
            for seed, (one, n) in enumerate(zip(asked, (8, 30, 30), strict=True)):
                one.handle = made.submit(request(tokens(5, seed), n, client=one.name), one)
        go_on.set()
        assert all(one.end().finish_reason == "length" for one in asked)
    assert first.end().finish_reason == "length"
    assert [one.tokens for one in asked] == [
        alone(name, tokens(5, seed), n) for seed, n in enumerate((8, 30, 30))
    ]
    second = [i for i, client in enumerate(order) if client == "a"][1]
    assert "b" not in order[second:]


def test_prompts_of_a_client_in_debt_wait() -> None:
    with engine("llama-dense") as made:
        turns = made._scheduler._turns
        job = Job(0, Answer(request([1, 2, 3], client="a"), made.model), lambda event: None)
        busy = [(Slot(1), job)]
        assert turns._pieces(busy, 0, 100, False, False) == {1: 3}
        turns.shares._debts = {"a": 0.1}
        assert turns._pieces(busy, 0, 100, False, False) == {}


def test_clients_are_charged_for_scored_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tokens in the batch, whose time stands still elsewhere."""
    now, score = [0.0], scheduler.score_pending

    def take_long(*args: Any) -> Any:
        now[0] += 100
        return score(*args)

    monkeypatch.setattr(scheduler, "clock", lambda: now[0])
    monkeypatch.setattr(scheduler, "score_pending", take_long)
    with engine("llama-dense") as made:
        charged = note_charges(made)
        prompts = {"a": tokens(11, 1), "b": tokens(31, 2), "c": [5]}
        asked = [request(ids, 0, prompt_logprobs=0, client=name) for name, ids in prompts.items()]
        ask_all(made, asked)
    assert now[0] == 100
    assert [charged[name] for name in "abc"] == pytest.approx([25, 75, 0], abs=5)


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_scored_prompts_of_a_client_in_debt_wait(name: str) -> None:
    """Until the responses of others have paid, or ended."""
    seen: list[int] = []
    with engine(name) as made:
        shares = made._scheduler._turns.shares
        note_charges(made)  # only this client owes
        shares.owes = lambda client: client == "a" and shares.share > 0  # type: ignore[method-assign]
        go_on = stall(made)
        first = ask(made, request([1], 8, client="c"))
        first.until(0)
        other = Asked()

        class Noting(Asked):
            def __call__(self, event: Any) -> None:
                seen.extend(len(other.tokens) for _ in event.scores)
                super().__call__(event)

        scored = Noting()
        with made._changed:
            how = {"prompt_logprobs": 0, "client": "a"}
            scored.handle = made.submit(request(tokens(20), 0, **how), scored)
            other.handle = made.submit(request(tokens(5, 1), 30, client="b"), other)
        go_on.set()
        assert [one.end().finish_reason for one in (first, other, scored)] == ["length"] * 3
    assert seen == [30] * 19
    assert other.tokens == alone(name, tokens(5, 1), 30)
