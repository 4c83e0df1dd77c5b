"""Prefix caches with a common limit: the least recently used state of all is evicted first."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import llama_py
from llama_py.decoding.prefix_cache.budget import MIB, CommonLimit
from llama_py.loading.model import DEMO
from llama_py.serving import Engine, Request
from tests.llama_py.test_reuse import ask, hybrid, text
from tests.support.toy_memory import Toy


def limit_to(common: CommonLimit, n: int) -> None:
    vars(common)["limit"] = n  # bytes, instead of MiB


def size(*toys: Toy) -> int:
    return sum(toy.reuse.budget.size for toy in toys)


@pytest.fixture
def two() -> tuple[CommonLimit, Toy, Toy, list[Callable[[], None]]]:
    """A limit that two caches reach, the caches, and the functions for the first one's thread."""
    common, calls = CommonLimit(-1), list[Callable[[], None]]()
    a, b = hybrid(), hybrid()
    a.reuse.budget.share(common, calls.append)
    b.reuse.budget.share(common, lambda do: do())
    for seed in range(2):
        ask(a, text(30, seed))
    ask(b, text(30, 2))
    limit_to(common, size(a, b))
    return common, a, b, calls


def test_an_idle_cache_gives_its_states_up(two: tuple[CommonLimit, Toy, Toy, list]) -> None:
    common, a, b, _ = two
    a.reuse.budget._call = lambda do: do()
    ask(b, text(30, 3))
    assert not common.is_exceeded
    assert a.reuse.budget.n_evicted > 0 == b.reuse.budget.n_evicted
    assert ask(b, [*text(30, 3), 1]).n_computed == 1


def test_a_cache_that_does_not_answer_costs_a_state_at_most(
    two: tuple[CommonLimit, Toy, Toy, list],
) -> None:
    common, a, b, calls = two
    held = a.reuse.budget.size
    for seed in range(3, 9):
        ask(b, text(30, seed))
    most = max(len(state.data) for state in b.reuse.budget._kept)
    assert len(calls) == 1 and a.reuse.budget.size == held and b.reuse.budget.n_evicted > 0
    assert size(a, b) <= (common.limit or 0) + most


def test_a_state_that_is_used_again_stays(two: tuple[CommonLimit, Toy, Toy, list]) -> None:
    """The other cache has the least recently used states then, and evicts its own."""
    common, a, b, _ = two
    a.reuse.budget._call = lambda do: do()
    for state in [*a.reuse.budget._kept]:
        a.reuse.budget.use(state)
    earlier = {*b.reuse.budget._kept}
    ask(b, text(30, 3))
    assert b.reuse.budget.n_evicted > 0 and not common.is_exceeded
    assert not a.reuse.budget.n_evicted or earlier.isdisjoint(b.reuse.budget._kept)


def test_a_closed_cache_counts_no_more(two: tuple[CommonLimit, Toy, Toy, list]) -> None:
    common, a, b, calls = two
    a.reuse.close()
    ask(b, text(30, 3))
    assert not calls and not b.reuse.budget.n_evicted and not common.is_exceeded


def test_a_state_larger_than_the_common_limit_is_not_kept() -> None:
    toy, common = hybrid(), CommonLimit(0)
    toy.reuse.budget.share(common, lambda do: do())
    ask(toy, text(30))
    assert common.limit == 0 == toy.reuse.budget.size
    assert CommonLimit(3).limit == 3 * MIB


def test_engines_evict_in_their_own_threads() -> None:
    common = CommonLimit(-1)
    how = {"n_ctx": 256, "n_seq_max": 1, "cache_limit": common}
    with llama_py.Model(DEMO, "cpu") as model, Engine(model, **how) as a, Engine(model, **how) as b:
        prompt = model.tokenizer.tokenize
        short = llama_py.AnswerParams(max_tokens=1)

        def answer(engine: Engine, first: int) -> None:
            for i in range(first, first + 4):
                ids = prompt(f"{i} kings and queens " * 8)
                for _ in engine.stream(Request(prompt=ids, params=short)):
                    pass

        answer(a, 0)
        limit_to(common, a._cache.budget.size)
        assert common.limit and not a._cache.budget.n_evicted
        answer(b, 10)
        until = time.monotonic() + 60
        while common.is_exceeded and time.monotonic() < until:
            time.sleep(0.01)
        assert not common.is_exceeded and a._cache.budget.n_evicted and b._cache.budget.size
