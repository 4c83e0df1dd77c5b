"""Limits of what one client asks for, and the log line of each request."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py.serving import Request
from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.wire import usage
from llama_py_server.wire.usage import MINUTE, Client, UsageLimit
from tests.server.served import LOCAL, holding, served

ASK = {"prompt": "To be", "n_predict": 5, "ignore_eos": True}
A, B = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}


def client_of(state: ModelState, **options: Any) -> TestClient:
    listen = ListenParams(api_key=("a", "b"), **options)
    return TestClient(app(holding(state), listen), LOCAL, raise_server_exceptions=False)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(usage.time, "monotonic", lambda: time[0])
    return time


def test_requests_a_minute(state: ModelState, now: list[float]) -> None:
    client = client_of(state, client_requests=2)
    for _ in range(2):
        assert client.post("/tokenize", json={"content": "a"}, headers=A).status_code == 200
        now[0] += 20
    refused = client.post("/tokenize", json={"content": "a"}, headers=A)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "20"
    assert refused.json()["error"] == {
        "code": 429,
        "message": "this client is at its limit of 2 requests per minute (--client-requests); try"
        " again in 20 seconds",
        "type": "rate_limit_error",
    }
    assert client.post("/tokenize", json={"content": "a"}, headers=B).status_code == 200
    now[0] += 20
    assert client.post("/tokenize", json={"content": "a"}, headers=A).status_code == 200
    assert client.post("/tokenize", json={"content": "a"}, headers=A).status_code == 429


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_a_minute(state: ModelState, now: list[float], stream: bool) -> None:
    client = client_of(state, client_tokens=7)
    body = {**ASK, "stream": stream}
    n = len(client.post("/tokenize", json={"content": ASK["prompt"]}, headers=A).json()["tokens"])
    assert n + 5 >= 7
    assert client.post("/completion", json=body, headers=A).status_code == 200
    assert client.post("/completion", json=body, headers=A).status_code == 429
    assert client.post("/completion", json=body, headers=B).status_code == 200
    now[0] += MINUTE
    assert client.post("/completion", json=body, headers=A).status_code == 200


def test_requests_at_a_time() -> None:
    client = Client("a", n_running=2)
    limit = UsageLimit(None, ListenParams(client_parallel=2), {})  # type: ignore[arg-type]
    refused = limit._refusal(client, 0.0)
    assert refused is not None and "2 requests in parallel" in refused[0].message
    client.n_running = 1
    assert limit._refusal(client, 0.0) is None


def test_the_engine_knows_the_client_of_a_request(
    state: ModelState, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients share its slots and its time."""
    clients: list[str] = []
    submit = state.engine.submit

    def noted(request: Request, told: Any) -> Any:
        clients.append(request.client)
        return submit(request, told)

    monkeypatch.setattr(state.engine, "submit", noted)
    body = {"prompt": ["Once", "Twice"], "n_predict": 1}
    assert client.post("/completion", json=body).status_code == 200
    assert clients == ["testclient"] * 2


def test_a_limit_of_parallel_requests_is_one_of_slots() -> None:
    with served("-np", "4", "--client-parallel", "3") as (_, state):
        assert state.engine._scheduler._admission._client_slots == 3


def test_idle_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MAX_CLIENTS", 3)
    clients: dict[str, Client] = {}
    limit = UsageLimit(None, ListenParams(), clients)  # type: ignore[arg-type]
    for i in range(3):
        found = limit._client({"client": (f"10.0.0.{i}", 1)}, 0.0)
        found.n_running = int(i == 1)
    limit._client({"client": ("10.0.0.9", 1)}, 0.0)
    assert [*clients] == ["10.0.0.1", "10.0.0.9"]


def test_a_log_line_of_each_request(state: ModelState, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(state)
    with caplog.at_level(logging.INFO, "llama_py"):
        client.post("/completion?secret=x", json=ASK, headers=B)
        client.get("/health")
        client.get("/none%1b[31m", headers=A)
    lines = [r.getMessage() for r in caplog.records if " s, " in r.getMessage()]
    assert lines[0].startswith("key 1: POST /completion 200, ")
    assert lines[0].endswith(" tokens") and not lines[0].endswith(" 0 tokens")
    assert lines[1].startswith("testclient: GET /health 200, ")
    assert lines[2].startswith("key 0: GET /none") and "\x1b" not in lines[2]
    assert not any("secret" in line or "To be" in line for line in lines)


def test_numbers_of_each_key(state: ModelState) -> None:
    client = client_of(state)
    client.post("/completion", json=ASK, headers=B)
    text = client.get("/metrics", headers=A).text
    assert 'llamacpp:client_requests_total{client="key 1"} 1' in text
    assert 'llamacpp:client_requests_total{client="key 0"} 1' in text
    [line] = [
        x for x in text.splitlines() if x.startswith('llamacpp:client_tokens_total{client="key 1')
    ]
    assert int(line.split()[-1]) > 5
