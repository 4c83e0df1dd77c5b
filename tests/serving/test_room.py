"""Sequences that share cells give them to each other; full ones end, or lose their middle."""

from __future__ import annotations

import pytest

from llama_py.serving import TooLong
from llama_py.serving.job import Job
from llama_py.serving.slots import Slot
from tests.serving.engines import alone, ask, ask_all, engine, held, request
from tests.support.live_models import tokens

SHARED = {"kv_unified": True, "n_ctx": 256}


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense", "kimi-linear-moe"])
def test_who_came_last_gives_way_and_goes_on_later(name: str) -> None:
    """4 answers of 110 tokens each need 440 cells, of which there are 256."""
    prompts = [tokens(10, seed) for seed in range(4)]
    with engine(name, **SHARED) as made:
        found = ask_all(made, [request(ids, 100) for ids in prompts])
        expected = [alone(name, ids, 100) for ids in prompts]
        assert [one.tokens for one in found] == expected
        assert [one.end().finish_reason for one in found] == ["length"] * 4
        assert not any(one.end().truncated for one in found)
        assert made.metrics().total.n_gen == 400
        again = ask_all(made, [request(ids, 100) for ids in prompts])
        assert [one.tokens for one in again] == expected
        for ids, answer in zip(prompts, expected, strict=True):  # all of it is known
            t = ask(made, request([*ids, *answer[:98], 1], 1)).end().timings
            assert t.n_reused == 108 or (t.n_reused >= 96 and name != "llama-dense")


def test_idle_sequences_make_room(name: str = "llama-dense") -> None:
    with engine(name, **SHARED) as made:
        for seed in range(4):
            ask(made, request(tokens(60, seed), 2)).end()
        one = ask(made, request(tokens(200, 9), 20))
        assert one.end().error is None and one.tokens == alone(name, tokens(200, 9), 20)
        old = ask(made, request(tokens(60, 0), 2)).end()
        assert old.timings.n_reused == 59  # from host memory


@pytest.mark.parametrize("name", ["llama-dense", "qwen35-dense"])
def test_a_full_context_is_the_end(name: str) -> None:
    with engine(name) as made:
        ids = tokens(240, 1)
        full, other = ask_all(made, [request(ids, -1), request([1], 40)])
        assert full.end().finish_reason == "length" and full.end().truncated
        assert full.tokens == alone(name, ids, -1) and len(full.tokens) == 17
        assert other.tokens == alone(name, [1], 40) and not other.end().truncated
        exact = ask(made, request(tokens(256, 2), -1))
        assert exact.end().truncated and len(exact.tokens) == 1
        with pytest.raises(TooLong):
            ask(made, request(tokens(257, 2), 1))
        none = ask(made, request(tokens(5), 0)).end()
        assert (none.finish_reason, none.timings.n_gen, none.timings.n_done) == ("length", 0, 5)


@pytest.mark.parametrize("unified", [False, True])
def test_a_shift_of_one_is_nothing_to_the_others(unified: bool) -> None:
    name, ids = "llama-dense", tokens(40, 1)
    with engine(name, kv_unified=unified, n_ctx=1024 if not unified else 256) as made:
        how = {"context_shift": True, "n_keep": 8}
        shifted = ask(made, request(ids, 300, **how))
        shifted.until(20)
        others = [ask(made, request([*ids, *tokens(3, s)], 30)) for s in range(2)]
        for s, one in enumerate(others):
            assert one.end().error is None
            assert one.tokens == alone(name, [*ids, *tokens(3, s)], 30)
        expected = alone(name, ids, 300, context_shift=True, n_keep=8)
        shifted.until(210)
        sharing = [*ids, *expected[:150], 5]  # when the other is about to be full
        one = ask(made, request(sharing, 9))
        one.end()
        assert one.tokens == alone(name, sharing, 9)
        end = shifted.end()
        assert end.finish_reason == "length" and len(shifted.tokens) == 300
        assert end.timings.n_discarded > 0 and end.truncated
        assert shifted.tokens == expected
        later = ask(made, request([*ids, 5], 9))
        later.end()
        assert later.tokens == alone(name, [*ids, 5], 9)


@pytest.mark.parametrize("n_discard", [0, 200])
def test_a_request_that_loses_shared_cells_restarts(n_discard: int) -> None:
    """It begins in the step in which the sequence whose cells it shares is shifted."""
    name, ids = "llama-dense", tokens(8, 1)
    how = {"context_shift": True, "n_keep": 8}
    with engine(name, kv_unified=True, n_ctx=256, n_seq_max=2) as made:
        restart, restarted = made._scheduler._restart, list[int]()

        def noting(slot: Slot, job: Job) -> None:
            restarted.append(slot.id)
            restart(slot, job)

        made._scheduler._restart = noting  # type: ignore[method-assign]
        with held(made, 248) as go_on:
            shifted = ask(made, request(ids, 300, n_discard=n_discard, **how))
            shifted.until(248)
            sharing = [*ids, *shifted.tokens[:230], 5]
            one = ask(made, request(sharing, 9))
            go_on.set()
            end = one.end()
        n = shifted.end().timings.n_discarded
        assert n == (n_discard or 124) and restarted[:1] == [one.events[0].slot]
        assert one.events[0].timings.n_reused == 238 and end.timings.n_reused == 8 + n
        assert one.tokens == alone(name, sharing, 9)


def test_as_many_leave_as_a_request_says() -> None:
    with engine("llama-dense") as made:
        for n_discard, n in [(40, 40), (0, 124), (999, 247)]:
            how = {"context_shift": True, "n_keep": 8, "n_discard": n_discard}
            one = ask(made, request(tokens(8), 250, **how))
            assert one.end().timings.n_discarded == n
