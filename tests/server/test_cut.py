"""Answers that are cut when the server is stopped: they end with what there is of them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from llama_py_server.command import Loader
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.state import ModelState
from llama_py_server.stream.replies import cut_all
from llama_py_server.wire.listen import Stoppable
from tests.server.served import ASK, LOCAL, WAIT, events, holding

LONG = {"max_tokens": 900, "ignore_eos": True}
BODIES: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "a", **LONG},
    "/v1/completions": {"prompt": "a", **LONG},
    "/v1/chat/completions": {"messages": ASK, **LONG},
    "/v1/messages": {"messages": ASK, **LONG},
    "/v1/responses": {"input": "a", **LONG, "max_output_tokens": 900},
}
LAST = {  # a part of the last event
    "/completion": {"stop": True, "stop_type": "limit"},
    "/v1/messages": {"type": "message_stop"},
    "/v1/responses": {"type": "response.incomplete"},
}


@pytest.fixture
def slow(state: ModelState, monkeypatch: pytest.MonkeyPatch) -> ModelState:
    """A model whose answers take long."""
    scheduler = state.engine._scheduler
    step = scheduler.step

    def wait_and_step() -> None:
        time.sleep(0.05)
        step()

    monkeypatch.setattr(scheduler, "step", wait_and_step)
    return state


def cut(
    client: TestClient, state: ModelState, path: str, *bodies: dict[str, Any]
) -> list[httpx.Response]:
    """The responses to requests that are cut once every slot has answered for a while."""

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL, timeout=WAIT) as asking:
            tasks = [asyncio.ensure_future(asking.post(path, json=body)) for body in bodies]
            busy = min(len(bodies), state.engine.n_slots)
            while sum(slot.n_gen > 4 for slot in state.engine.slots()) < busy:
                await asyncio.sleep(0.01)
            cut_all()
            found = await asyncio.gather(*tasks)
            while any(slot.state != "idle" for slot in state.engine.slots()):
                await asyncio.sleep(0.01)
            return found

    return asyncio.run(run())


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_ends_with_its_last_event(client: TestClient, slow: ModelState, path: str) -> None:
    (found,) = cut(client, slow, path, {**BODIES[path], "stream": True})
    told = events(found.text)
    assert 2 < len(told) < 900
    if path in LAST:
        last = told[-1][1]
        assert {key: last[key] for key in LAST[path]} == LAST[path]
    else:
        assert told[-1][1] == "[DONE]" and '"finish_reason":"length"' in found.text


@pytest.mark.parametrize("path", BODIES)
def test_a_whole_answer_has_what_there_is(client: TestClient, slow: ModelState, path: str) -> None:
    (found,) = cut(client, slow, path, BODIES[path])
    body = found.json()
    n = body.get("tokens_predicted") or next(
        n for name, n in body["usage"].items() if name in ("completion_tokens", "output_tokens")
    )
    assert found.status_code == 200 and 1 < n < 900


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_not_begun_is_refused(
    client: TestClient, slow: ModelState, stream: bool
) -> None:
    body = {**BODIES["/completion"], "stream": stream}
    found = cut(client, slow, "/completion", *3 * [body])
    *begun, waiting = sorted(found, key=lambda one: one.status_code)
    assert [one.status_code for one in begun] == [200, 200]
    assert waiting.status_code == 503 and "is stopping" in waiting.text


@pytest.mark.parametrize("begins", [False, True])
def test_a_request_that_is_cancelled(begins: bool) -> None:
    """It ends with an error, if nothing was sent, and raises nothing."""
    sent: list[Message] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(WAIT)

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
        doing = Stoppable(endless)(scope, lambda: asyncio.sleep(WAIT), send)  # type: ignore[arg-type]
        task = asyncio.ensure_future(doing)
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(run())
    assert sent[0]["status"] == (200 if begins else 503)
    assert begins or "stopping" in json.loads(sent[1]["body"])["error"]["message"]


def test_a_model_in_use_is_waited_for_up_to_the_end(
    state: ModelState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--timeout-stop counts also where a model would take longer to close."""
    pool = holding(state)
    monkeypatch.setattr(ModelPool, "close", lambda _: time.sleep(3600))
    monkeypatch.setattr("llama_py_server.command.CLOSING", 3600.0)
    monkeypatch.setattr("llama_py_server.command.LEAVING", 0.0)

    async def run() -> None:
        loader = Loader(pool, 0)
        loader.begin_end()
        await loader._close()
        assert loader.is_busy

    asyncio.run(run())
