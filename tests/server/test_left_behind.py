"""What failed, or was stopped early, leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.applications import Starlette

from ggml_py.errors import AllocError
from llama_py import serving
from llama_py.model import Model
from llama_py.params import AnswerParams
from llama_py.sampler import Sampler
from llama_py.serving import Request
from llama_py_server.command import Loader, build_model_pool, parser
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.state import ModelState
from llama_py_server.schema.completion import Delivery
from llama_py_server.stream import replies
from llama_py_server.stream.replay import SavedStream
from tests.server.served import SMALL
from tests.support.limits import SECONDS

WAIT = SECONDS


@pytest.mark.parametrize("fails", [(serving.Engine, "__init__"), (serving.Engine, "set_loras")])
def test_a_model_whose_engine_fails_is_closed(
    fails: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise AllocError("full")

    closed: list[str] = []
    for kind in (Model, serving.Engine):

        def close(self: Any, real: Any = kind.close, name: str = kind.__name__) -> None:
            closed.append(name)
            real(self)

        monkeypatch.setattr(kind, "close", close)
    monkeypatch.setattr(*fails, no_memory)
    pool = build_model_pool(parser().parse_args([*SMALL]))
    with pytest.raises(AllocError, match="full"), pool.models.use(""):
        pass
    assert closed == (["Model"] if fails[1] == "__init__" else ["Engine", "Model"])
    pool.close()


def test_a_stream_that_is_stopped_before_it_began_gives_its_model_back() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b""

    async def run() -> None:
        kept, ended = SavedStream("a"), asyncio.Event()
        kept.run(chunks(), ended.set)
        kept.stop()
        await asyncio.wait_for(ended.wait(), WAIT)

    asyncio.run(run())


def test_who_leaves_while_answers_are_prepared_cancels_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    cancelled: list[int] = []

    def submit(*_: Any) -> Any:
        begun.set()
        assert go.wait(WAIT)
        return SimpleNamespace(id=7, cancel=lambda: cancelled.append(7))

    engine = type("Engine", (), {"submit": staticmethod(submit), "n_slots": 1})()
    state = cast("ModelState", SimpleNamespace(engine=engine, loss=None))
    made = replies.PendingReplies._submit
    monkeypatch.setattr(replies.PendingReplies, "_submit", lambda self: (made(self), done.set()))

    async def run() -> None:
        requests = [Request(prompt=[1]), Request(prompt=[2])]
        asked = replies.PendingReplies(state, requests, Delivery())
        task = asyncio.ensure_future(asked.__aenter__())
        await asyncio.to_thread(begun.wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await asyncio.to_thread(done.wait, WAIT)

    asyncio.run(run())
    assert cancelled == [7] and not replies.running(state)


def test_a_server_of_several_models_collects_its_garbage() -> None:
    async def run() -> None:
        async with Loader(ModelPool([], several=True)).lifespan(Starlette()):
            assert gc.isenabled()

    gc.disable()  # as commands begin
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_an_ended_request_leaves_no_garbage_with_its_sampler(state: ModelState) -> None:
    """A cycle would keep its sampler, which has the size of a vocabulary, until a collection."""
    samplers: list[weakref.ref[Any]] = []
    made = Sampler.__init__

    def note(self: Sampler, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        samplers.append(weakref.ref(self))

    async def run() -> None:
        requests = [Request(prompt=[1], params=AnswerParams(max_tokens=n)) for n in (1, 2, 500)]
        async with replies.PendingReplies(state, requests, Delivery()) as asked:
            ended = 0
            while ended < 2:
                change = await asked.next()
                ended += change is not None and change.reply.has_ended
            kept = sum(one() is not None for one in samplers)
            assert kept < 3  # before the last reply has ended
        while state.engine.metrics().n_busy:
            await asyncio.sleep(0.01)

    gc.collect()
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sampler, "__init__", note)
            asyncio.run(run())
        assert len(samplers) == 3
        assert not [one for one in samplers if one() is not None]
    finally:
        gc.enable()
