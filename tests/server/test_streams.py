"""Streams that go on without their client, and Vertex AI's requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.app import app
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.stream import replay
from llama_py_server.stream.replies import running
from tests.server.served import ASK, LOCAL, WAIT, events, holding, until
from tests.serving.engines import held

BODY = {"prompt": "To be", "n_predict": 30, "ignore_eos": True, "stream": True}
ID = "conversation/1::model"


@pytest.fixture(scope="module")
def pool(serving: tuple[TestClient, ModelState]) -> ModelPool:
    return holding(serving[1])


@pytest.fixture(scope="module")
def client(pool: ModelPool) -> Iterator[TestClient]:
    """All of its requests are in one loop, as those of a server."""
    with TestClient(
        app(pool, ListenParams()), base_url=LOCAL, raise_server_exceptions=False
    ) as found:
        yield found


def ask(client: TestClient, id: str = ID, **more: Any) -> Any:
    headers = {"X-Conversation-Id": id}
    return client.post("/completion", json={**BODY, **more}, headers=headers)


def kept_whole(client: TestClient, id: str = ID) -> Any:
    """What is known of an answer when it has ended: a slow reader of little that is kept ends
    before it."""
    ask(client, id)
    until(lambda: known(client, id)["is_done"])
    return known(client, id)


def known(client: TestClient, id: str = ID) -> Any:
    """What is told of a stream; of one that is not there, that it has nothing."""
    found = client.post("/v1/streams/lookup", json={"conversation_ids": [id]}).json()
    return found[0] if found else {"total_bytes": 0, "is_done": False}


def resumed(client: TestClient, at: int = 0, id: str = ID) -> Any:
    return client.get("/v1/stream", params={"conv_id": id, "from": at})


def test_what_was_sent_can_be_had_again(client: TestClient) -> None:
    said = ask(client)
    assert said.status_code == 200 and len(events(said.text)) == 31
    assert resumed(client).content == said.content
    for at in (1, 100, len(said.content)):
        assert resumed(client, at).content == said.content[at:]
    ids = {"conversation_ids": ["conversation/1", "another"]}
    found = client.post("/v1/streams/lookup", json=ids).json()
    assert [(one["conversation_id"], one["is_done"]) for one in found] == [(ID, True)]
    assert found[0]["total_bytes"] == len(said.content)
    assert client.delete("/v1/stream", params={"conv_id": ID}).status_code == 204
    assert resumed(client).status_code == 404


def kept_by(client: Any) -> replay.SavedStream:
    found = client.app.state.streams.get(ID)
    assert found is not None
    return found


def begun(do: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """In a thread of its own, and the list that what comes of it is put into."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(do()))
    thread.start()
    return thread, found


def test_whoever_comes_later_reads_on_while_it_is_answered(
    client: TestClient, pool: ModelPool, state: ModelState
) -> None:
    client.delete("/v1/stream", params={"conv_id": ID})
    with held(state.engine, 9) as go_on:
        first, all_of_it = begun(lambda: ask(client, n_predict=300).content)
        until(lambda: known(client)["total_bytes"] > 50)
        later = [begun(lambda at=at: resumed(client, at).content) for at in (0, 50, 10**9)]
        until(lambda: kept_by(client).n_readers == 4)
        assert not any(found for _, found in later) and not known(client)["is_done"]
        go_on.set()
        for thread, _ in [(first, all_of_it), *later]:
            thread.join(WAIT)
    assert len(events(all_of_it[0].decode())) == 301
    assert [found[0] for _, found in later] == [all_of_it[0], all_of_it[0][50:], b""]


def test_a_stop_ends_it(client: TestClient, pool: ModelPool, state: ModelState) -> None:
    client.delete("/v1/stream", params={"conv_id": ID})
    with held(state.engine, 9) as go_on:
        thread, said = begun(lambda: ask(client, n_predict=900))
        until(lambda: known(client)["total_bytes"] > 50)
        client.delete("/v1/stream", params={"conv_id": ID})
        thread.join(WAIT)
        assert 0 < len(events(said[0].text)) < 20
        until(lambda: not running(state) and pool.models.info()[0].n_uses == 0)
        go_on.set()


def test_a_request_that_fails_leaves_nothing(client: TestClient, pool: ModelPool) -> None:
    assert ask(client, temperature="hot").status_code == 400
    assert resumed(client).status_code == 404
    said = client.post(
        "/completion",
        json={**BODY, "stream": False, "n_predict": 2},
        headers={"X-Conversation-Id": ID},
    )
    assert said.json()["tokens_predicted"] == 2 and resumed(client).status_code == 404
    assert pool.models.info()[0].n_uses == 0


@pytest.mark.parametrize("query", ["", "?conv_id=", "?conv_id=x&from=-1", "?conv_id=x&from=a"])
def test_wrong_questions(client: TestClient, query: str) -> None:
    ask(client, "x", n_predict=1)
    assert client.get(f"/v1/stream{query}").status_code == 400


def test_what_is_kept_is_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST", 1000)
    one = kept_whole(client)
    assert resumed(client).status_code == 400
    assert len(resumed(client, one["total_bytes"] - 900).content) == 900
    set_back = SimpleNamespace(time=iter(range(10**9, 0, -99)).__next__, monotonic=time.monotonic)
    monkeypatch.setattr(replay, "time", set_back)  # whose clock tells no order
    monkeypatch.setattr(replay, "TOGETHER", 1500)
    kept_whole(client, "another")
    kept_whole(client, "a third one")
    assert resumed(client).status_code == 404  # it was the oldest
    assert resumed(client, 10**6, "another").status_code == 200
    monkeypatch.setattr(replay, "SECONDS", -1.0)
    ask(client, "the last one")
    assert resumed(client, 10**6, "a third one").status_code == 404


def test_answers_that_go_on_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "TOGETHER", 1000)
    all_of_them = replay.SavedStreams()
    sizes = {"short": 100, "long": 900, "longest": 2000}
    for id, n in sizes.items():
        one = all_of_them.begin(id)
        one.runs, one.data = True, bytearray(range(100)) * (n // 100)
    all_of_them.sweep()
    left = [found for id in sizes if (found := all_of_them.get(id)) is not None]
    assert sum(len(one.data) for one in left) == 1000 and len(left) == 3
    assert [one.size for one in left] == [*sizes.values()] and left[0].dropped == 0
    assert all(bytes(one.data).endswith(bytes(range(1, 100))) for one in left)  # the last are there


def test_a_key_has_its_own_streams(state: ModelState) -> None:
    made = app(holding(state), ListenParams(api_key=("k", "other")))
    with (
        TestClient(made, LOCAL, headers={"authorization": "Bearer k"}) as mine,
        TestClient(made, LOCAL, headers={"x-api-key": "other"}) as theirs,
    ):
        said, ids = ask(mine, n_predict=2).content, {"conversation_ids": [ID]}
        assert resumed(mine).content == said and resumed(theirs).status_code == 404
        assert theirs.post("/v1/streams/lookup", json=ids).json() == []
        assert ask(theirs, n_predict=1).content != said
        theirs.delete("/v1/stream", params={"conv_id": ID})
        assert resumed(mine).content == said and resumed(theirs).status_code == 404


def test_predictions(state: ModelState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "alive")
    made = app(holding(state), ListenParams(api_key=("k",)))
    client = TestClient(made, base_url=LOCAL, raise_server_exceptions=False)
    assert client.get("/alive").json() == {"status": "ok"}
    talk = {"@requestFormat": "chatCompletions", "messages": ASK, "max_tokens": 3, "stream": True}
    more = [
        {"@requestFormat": "/tokenize", "content": "a"},
        {"@requestFormat": "no"},
        3,
        {"@requestFormat": "completion"},
    ]
    body = {"instances": [talk, talk, *more]}
    assert client.post("/predict", json=body).status_code == 401
    headers = {"authorization": "Bearer k"}
    found = client.post("/predict", json=body, headers=headers).json()["predictions"]
    assert [one["choices"][0]["message"]["role"] for one in found[:2]] == ["assistant"] * 2
    assert found[2]["tokens"] and "no handler" in found[3]["error"]["message"]
    assert [one["error"]["code"] for one in found[3:]] == [400, 400, 400]
    for wrong in ({}, {"instances": 3}, {"instances": [1] * 129}):
        assert client.post("/predict", json=wrong, headers=headers).status_code == 400
