"""An error ends one request, and a hang-up is none: no slot is lost, and others go on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import BackendError, GrammarError, ModelError
from llama_py.model import Model
from llama_py.serving import Engine, EngineClosed, Event
from tests.serving.engines import WAIT, Asked, alone, ask, ask_all, engine, request, stall
from tests.support.live_models import changed, model_of, tokens

BAD = 7  # the token whose embedding is NaN
KINDS = ["llama-dense", "gemma3-dense", "qwen35-dense", "kimi-linear-moe"]


def is_whole(made: Engine, name: str | Model) -> None:
    """All slots are free, and answer as ever."""
    found = ask_all(made, [request([9, i], 4, id_slot=i) for i in range(made.n_slots)])
    assert [one.tokens for one in found] == [alone(name, [9, i], 4) for i in range(made.n_slots)]
    assert [slot.state for slot in made.slots()] == ["idle"] * made.n_slots
    assert (made.metrics().n_busy, made.metrics().n_waiting) == (0, 0)


def with_nan(name: str) -> Model:
    def spoil(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        if "output.weight" not in arrays:
            arrays["output.weight"] = arrays["token_embd.weight"].copy()
        arrays["token_embd.weight"][..., BAD, :] = np.nan

    return model_of(*changed(name, spoil), "cpu")


@pytest.mark.parametrize("name", KINDS)
def test_a_nan_ends_one_request(name: str) -> None:
    model = with_nan(name)
    good = [t for t in tokens(40) if t != BAD]
    with engine(model, flash_attn="on", type_k="f16", type_v="f16") as made:
        how = {"flash_attn": "on", "type_k": "f16", "type_v": "f16"}
        others = [ask(made, request(ids, 30, logit_bias={BAD: -100.0})) for ids in (good, [1])]
        bad = ask(made, request([*good[:20], BAD, *good[20:]]))
        end = bad.end()
        assert isinstance(end.error, ModelError) and "NaN" in str(end.error)
        assert end.finish_reason == "error" and bad.tokens == []
        twice = ask(made, request([*good[:20], BAD, *good[20:]])).end()
        assert twice.error is not None and twice.timings.n_reused <= 20
        for one in others:
            assert one.end().error is None and len(one.tokens) == 30
        again = ask(made, request([*good[:20], 3, 5], 5, logit_bias={BAD: -100.0}))
        assert again.end().error is None  # what was before it may be used, what was behind it not
        for slot in range(made.n_slots):
            one = ask(made, request(good[:3], 5, id_slot=slot, logit_bias={BAD: -100.0}))
            one.end()
            assert one.tokens == alone(model, good[:3], 5, **how)


def test_a_grammar_that_is_none_is_told_at_once() -> None:
    with engine("llama-dense") as made:
        running = ask(made, request([1], 30))
        with pytest.raises(GrammarError):
            ask(made, request([1], grammar="root ::= nothing"))
        running.end()
        assert len(running.tokens) == 30
        is_whole(made, "llama-dense")


@pytest.mark.parametrize("n_events", (0, 1, 2, 4, 7, 11))
def test_whoever_hangs_up_at_any_event_leaves_nothing(n_events: int) -> None:
    """In the queue, in the prompt, in the answer, and by an exception of the listener."""
    name, seen = "qwen35-dense", list[Event]()
    with engine(name) as made:
        others = [ask(made, request(tokens(9, seed), 24)) for seed in range(3)]
        gone = threading.Event()

        def told(event: Event) -> None:
            seen.append(event)
            if len(seen) > n_events:
                gone.set()
                raise ConnectionError("the client has left")

        handle = made.submit(request(tokens(40, 9), 200), told)
        assert gone.wait(WAIT) and handle.wait(WAIT)
        assert len(seen) == n_events + 2 and seen[-1].finish_reason == "cancelled"
        go_on = stall(made)
        waiting = ask(made, request([3], 200))
        assert waiting.handle is not None
        waiting.handle.cancel()
        go_on.set()
        assert waiting.end().finish_reason == "cancelled"
        for seed, one in enumerate(others):
            assert one.end().finish_reason == "length"
            assert one.tokens == alone(name, tokens(9, seed), 24)
        is_whole(made, name)


def test_a_stream_that_is_not_read_to_its_end_is_cancelled() -> None:
    with engine("llama-dense") as made:
        go_on = stall(made, 4)
        stream = made.stream(request([1], 200))
        assert next(stream).token is None and next(stream).finish_reason is None
        stream.close()
        go_on.set()
        is_whole(made, "llama-dense")
        assert made.metrics().total.ended["cancelled"] == 1


def test_a_time_limit_ends_also_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for module in ("job", "scheduler"):
        monkeypatch.setattr(f"llama_py.serving.{module}.monotonic", lambda: now[0])
    with engine("llama-dense", n_seq_max=1, n_ctx=256) as made:
        go_on, first = stall(made, 4), Asked()

        def slow(event: Event) -> None:
            first(event)
            now[0] += 1

        first.handle = made.submit(request([1], 200, t_max=20), slow)
        second = ask(made, request([2], 200, t_max=10))
        go_on.set()
        assert second.end().finish_reason == "time" and second.tokens == []
        assert first.end().finish_reason == "time" and 0 < len(first.tokens) < 200


@pytest.mark.parametrize("fails", [1, 2])
def test_a_step_that_fails_is_tried_alone(monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
    """Once: all go on. Whoever's fails again: that one ends."""
    name = "qwen35-dense"
    with engine(name) as made:
        ctx, count = made._ctx, list[int]()
        decode = ctx.decode

        def failing(tokens: Any, *args: Any, **kwargs: Any) -> Any:
            count.append(1)
            if 20 <= len(count) < 20 + fails:
                decode(tokens, *args, **kwargs)  # the memory has it, but nobody learns that
                raise BackendError("the device is away")
            return decode(tokens, *args, **kwargs)

        monkeypatch.setattr(ctx, "decode", failing)
        found = ask_all(made, [request(tokens(9, seed), 24) for seed in range(3)])
        errors = [one.end().error for one in found]
        assert sum(isinstance(e, BackendError) for e in errors) == fails - 1
        for seed, one in enumerate(found):
            expected = alone(name, tokens(9, seed), 24)
            assert one.tokens == expected[: len(one.tokens)]
            assert len(one.tokens) == 24 or errors[seed] is not None
        monkeypatch.undo()
        is_whole(made, name)


@pytest.mark.parametrize("drain", [False, True])
def test_close_while_busy(drain: bool) -> None:
    made = engine("llama-dense", n_seq_max=2, n_ctx=512)
    go_on = stall(made, 20)
    asked = [ask(made, request(tokens(30, seed), 100)) for seed in range(4)]
    asked[0].until(3)
    task = made.erase_slot(0)
    closer = threading.Thread(target=made.close, args=(drain,))
    closer.start()
    while not made._closing:
        closer.join(0.001)
    go_on.set()
    closer.join(WAIT)
    made.close()
    for one in asked:
        assert one.handle is not None and one.handle.wait(0)
        assert isinstance(one.events[-1].error, EngineClosed) == (not drain)
        assert (len(one.tokens) == 100) == drain
    assert task.done() and (isinstance(task.exception(), EngineClosed) or drain)
    with pytest.raises(EngineClosed):
        made.erase_slot(0)


def test_many_threads_at_once() -> None:
    name = "qwen35-dense"
    prompts = [tokens(3 + i, i) for i in range(6)]
    expected = [alone(name, ids, 6) for ids in prompts]
    wrong = list[Any]()
    with engine(name) as made:

        def client(i: int) -> None:
            for turn in range(8):
                ids = prompts[(i + turn) % 6]
                stream = made.stream(request(ids, 6))
                if (i + turn) % 3 == 0:
                    next(stream)
                    stream.close()
                    continue
                found = [e.token for e in stream if e.token is not None]
                if found != expected[(i + turn) % 6]:
                    wrong.append((i, turn, found))
                made.slots(), made.metrics()

        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert wrong == []
        is_whole(made, name)


def test_an_engine_that_fails_and_cannot_tell_ends_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log that raises, as on a full disk, leaves nobody waiting."""
    with engine("llama-dense") as made:

        def fail(*_: Any, **__: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(made._scheduler, "step", fail)
        monkeypatch.setattr("llama_py.serving.engine.log.exception", fail)
        monkeypatch.setattr("threading.excepthook", lambda _: None)
        end = ask(made, request([1], 30)).end()
        assert isinstance(end.error, EngineClosed)
        assert str(made.error) == "no space left"
