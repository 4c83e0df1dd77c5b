"""Models that come and go, as the memory allows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import llama_py
from ggml_py.errors import AllocError, ModelError
from llama_py.serving import Busy, Engine, EngineClosed, Models, Source, model_size
from tests.serving.engines import WAIT, ask, request
from tests.support.commands import DEMO


class Served:
    """size  bytes;  n_open  how many are, of all"""

    n_open = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.error: Exception | None = None
        type(self).n_open += 1

    def close(self) -> None:
        type(self).n_open -= 1


def models(budget: int | None, real: int = 0, **sizes: int) -> Models[Served]:
    Served.n_open = 0
    sources = {n: Source(lambda size=size: Served(real or size), size) for n, size in sizes.items()}
    return Models(sources, budget)


def loaded(made: Models[Served]) -> set[str]:
    return {one.name for one in made.info() if one.state == "loaded"}


def test_a_lease_that_was_lost_does_not_keep_the_end_waiting() -> None:
    made = models(None, a=4, b=4)
    lost, back = made.acquire("a").result(WAIT), made.acquire("b").result(WAIT)
    back.end()
    made.close(timeout=0.01)
    assert Served.n_open == 0 and loaded(made) == set()
    lost.end()
    made.close()


def test_what_was_not_used_for_longest_leaves() -> None:
    with models(10, a=4, b=4, c=4, d=8) as made:
        for name in "abac":
            with made.use(name) as served:
                assert served.size == 4
        assert loaded(made) == {"a", "c"} and Served.n_open == 2
        with made.use("d"):
            assert loaded(made) == {"d"}
        assert not made.unload("a") and made.unload("d") and Served.n_open == 0
        with pytest.raises(ModelError, match="unknown model 'e'; known: a, b, c, d"), made.use("e"):
            pass
    with pytest.raises(EngineClosed), made.use("a"):
        pass
    with models(None, a=4, b=4) as made:
        for name in "ab":
            with made.use(name):
                pass
        assert loaded(made) == {"a", "b"}
    assert Served.n_open == 0


def test_what_is_in_use_stays() -> None:
    with models(10, a=6, b=6, c=2, huge=11) as made:
        with made.use("a") as first:
            with made.use("c"), made.use("a") as second:
                assert first is second
            with pytest.raises(Busy, match="model b cannot be loaded"), made.use("b", 0.01):
                pass
            with pytest.raises(Busy, match="in use"):
                made.unload("a")
            got = threading.Event()

            def wait() -> None:
                with made.use("b", WAIT):
                    got.set()

            thread = threading.Thread(target=wait)
            thread.start()
            wait_for(lambda: is_asked(made) or got.is_set())
            assert not got.is_set()
        thread.join(WAIT)
        assert got.is_set() and "a" not in loaded(made)
        with pytest.raises(AllocError, match="budget of 10"), made.use("huge"):
            pass


def test_one_that_is_larger_than_it_seemed_lets_others_leave() -> None:
    with models(10, real=6, a=4, b=4) as made:
        with made.use("a"), made.use("b"):
            assert loaded(made) == {"a", "b"}
        assert loaded(made) == {"a"}  # which was used last


def test_what_does_not_load_may_be_tried_again() -> None:
    fails = [True]

    def load() -> Served:
        if fails:
            fails.clear()
            raise AllocError("no memory")
        return Served(1)

    with Models({"a": Source(load, 1)}, 1) as made:
        with pytest.raises(AllocError, match="no memory"), made.use("a"):
            pass
        with made.use("a") as served:
            assert served.size == 1


def test_what_ended_by_an_error_is_loaded_anew() -> None:
    with models(None, a=1, b=1) as made:
        with made.use("a") as first:
            first.error = ModelError("it broke")
            made.tick()
            assert made.info()[0].error is first.error
            waiting = made.acquire("a")
            assert not waiting.done()  # until nobody uses it any more
        second = waiting.result(WAIT).served
        assert second is not first and made.info()[0].error is None
        waiting.result().end()
        second.error = ModelError("again")
        with made.use("a", WAIT) as third:
            assert third is not second and Served.n_open == 1


def test_an_engine_that_ended_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Engine:
        return Engine(llama_py.load(), n_ctx=512, n_seq_max=2, owns_model=True)

    with Models({"one": Source(load, 1)}) as made:
        with made.use("one") as engine:
            monkeypatch.setattr(engine._scheduler, "step", lambda: 1 / 0)
            end = ask(engine, request([5], 4)).end()
            assert isinstance(end.error, EngineClosed) and end.error.__cause__ is engine.error
        with made.use("one", WAIT) as another:
            assert ask(another, request([5], 4)).end().error is None


def test_many_threads() -> None:
    with models(8, a=4, b=4, c=4) as made:
        most = list[int]()

        def client(i: int) -> None:
            for turn in range(30):
                with made.use("abc"[(i * 7 + turn) % 3]) as served:
                    most.append(Served.n_open)
                    assert served.size == 4

        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert len(most) == 180 and max(most) <= 2


def test_engines_of_files(tmp_path: Path) -> None:
    def load() -> Engine:
        return Engine(llama_py.load(), n_ctx=512, n_seq_max=2, owns_model=True)

    size = model_size(DEMO)
    assert size == Path(DEMO).stat().st_size
    for no in (1, 2):
        (tmp_path / f"x-0000{no}-of-00002.gguf").write_bytes(b"1234")
    (tmp_path / "y-00001-of-00002.gguf").write_bytes(b"1")
    assert model_size(tmp_path / "x-00001-of-00002.gguf") == 8
    with Models({"one": Source(load, size), "two": Source(load, size)}, int(1.9 * size)) as made:
        for name in ("one", "two", "one"):
            with made.use(name) as engine:
                assert engine.size > 0.9 * size
                assert len(ask(engine, request([5], 4)).end().text) >= 0
            assert [one.name for one in made.info() if one.state == "loaded"] == [name]


def test_no_more_than_so_many() -> None:
    with Models({n: Source(lambda: Served(1), 1) for n in "abc"}, most=2) as made:
        for name in "abc":
            with made.use(name):
                pass
        assert loaded(made) == {"b", "c"}


def test_first_come_first_served() -> None:
    order: list[str] = []
    with models(4, a=4, b=4, c=4) as made:
        lease = made.acquire("a").result(WAIT)
        futures = []
        for name in "bcb":
            futures.append(made.acquire(name))
            futures[-1].add_done_callback(lambda f, name=name: (order.append(name), made.forget(f)))
        assert not order
        lease.end()
        wait_for(lambda: len(order) == 3)  # who waits for a future may go on before its callbacks
        assert order == ["b", "b", "c"]  # who wants the same does not wait for another turn


def test_who_leaves_while_waiting_costs_nobody_a_model() -> None:
    with models(4, a=4, b=4) as made:
        lease = made.acquire("a").result(WAIT)
        waiting = made.acquire("b")
        made.forget(waiting)
        lease.end()
        assert loaded(made) == {"a"} and waiting.cancelled()
        made.forget(given := made.acquire("a"))
        assert given.done() and made.info()[0].n_uses == 0


def test_nobody_waits_for_ever() -> None:
    """Others keep what is there in use without a pause."""
    with models(4, a=4, b=4) as made:
        made.patience = 0.0
        lease = made.acquire("a").result(WAIT)
        waiting = made.acquire("b")
        later = made.acquire("a")
        made.tick()
        assert not waiting.done() and not later.done()
        lease.end()
        waiting.result(WAIT).end()
        later.result(WAIT).end()
    with models(4, a=4, b=4) as made:  # patience has not ended
        made.patience = 1e9
        lease = made.acquire("a").result(WAIT)
        waiting = made.acquire("b")
        made.acquire("a").result(WAIT).end()
        made.tick()
        made.acquire("a").result(WAIT).end()
        lease.end()
        waiting.result(WAIT).end()


def test_what_leaves_returns_for_who_comes_later() -> None:
    with models(None, a=4) as made:
        assert not made.unload_when_idle("a")
        lease = made.acquire("a").result(WAIT)
        assert made.unload_when_idle("a")
        later = made.acquire("a")
        assert not later.done() and Served.n_open == 1
        lease.end()
        again = later.result(WAIT)
        assert again.served is not lease.served and Served.n_open == 1
        again.end()


def test_idle_ones_sleep() -> None:
    with models(None, a=4, b=4) as made:
        with made.use("a"), made.use("b"):
            pass
        made.tick(1000.0)
        assert loaded(made) == {"a", "b"}
        with made.use("b"):
            wait_for(lambda: after_tick(made, a="unloaded", b="loaded"))
        assert [one.asleep for one in made.info()] == [True, False]
        look = made.peek("b")
        assert look is not None and made.peek("a") is None
        look.end()
        with made.use("a"):
            assert not made.info()[0].asleep
        wait_for(lambda: after_tick(made, a="unloaded", b="unloaded"))
        assert made.unload_when_idle("a")
        assert not made.unload_when_idle("a")  # unloaded already
        assert [one.asleep for one in made.info()] == [False, True]


def after_tick(made: Models[Served], **states: str) -> bool:
    """How models are; what is idle for a moment may be so only at the clock's next step."""
    made.tick(1e-9)
    return {one.name: one.state for one in made.info()} == states


def is_asked(made: Models[Served]) -> bool:
    """Return True if a request waits for a model that it cannot have yet."""
    with made._lock_pool():
        return bool(made._asked)


def wait_for(holds: Callable[[], bool]) -> None:
    for _ in range(round(100 * WAIT)):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


def test_models_come_and_go() -> None:
    with models(4, a=4) as made:
        made.add("b", Source(lambda: Served(4), 4))
        with pytest.raises(ModelError, match="model 'b' already exists"):
            made.add("b", Source(lambda: Served(4), 4))
        lease = made.acquire("a").result(WAIT)
        waiting = made.acquire("b")
        made.remove("b")
        with pytest.raises(ModelError, match="was removed"):
            waiting.result(WAIT)
        made.remove("a")
        assert made.names == () and Served.n_open == 1
        made.add("a", Source(lambda: Served(4), 4))
        again = made.acquire("a")
        assert not again.done()  # the one before takes all the room
        lease.end()
        again.result(WAIT).end()
    assert Served.n_open == 0


def test_less_memory_than_the_budget_lets_idle_ones_leave() -> None:
    def load() -> Served:
        if Served.n_open:
            raise AllocError("no memory")
        return Served(1)

    Served.n_open = 0
    with Models({n: Source(load, 1) for n in "ab"}, 10) as made:
        with made.use("a"):
            with pytest.raises(AllocError, match="no memory"), made.use("b"):
                pass
            assert isinstance(made.info()[1].error, AllocError)
        with made.use("b"):
            assert loaded(made) == {"b"} and made.info()[1].error is None
