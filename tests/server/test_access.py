"""Keys, pages of other origins, limits, and the end of whoever does not wait."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from llama_py.serving import Busy
from llama_py_server.app import app
from llama_py_server.models.model_pool import ModelPool
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.routes import page
from llama_py_server.routes.tools import NO_TOOLS, Toolbox
from llama_py_server.stream.replies import running
from tests.server.served import LOCAL, WAIT, holding, leave, until
from tests.serving.engines import held

KEY = "a-secret"


def client_of(state: ModelState | None, toolbox: Toolbox = NO_TOOLS, **options: Any) -> TestClient:
    pool = ModelPool([]) if state is None else holding(state)
    made = app(pool, ListenParams(**options), toolbox=toolbox)
    return TestClient(made, base_url=LOCAL, raise_server_exceptions=False)


def test_keys(state: ModelState) -> None:
    client = client_of(state, api_key=("other", KEY))
    body = {"content": "a"}
    for headers in ({}, {"authorization": "Bearer x"}, {"authorization": f"Bearer {KEY}x"}):
        refused = client.post("/tokenize", json=body, headers=headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
        assert client.post("/tokenize", json=body, headers=headers).status_code == 200
    assert client.get("/health").status_code == 200


def test_keys_of_a_file(state: ModelState, tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text(f"\n{KEY}\n\n")
    assert ListenParams(api_key_file=str(file)).keys() == (KEY,)


@pytest.mark.parametrize(
    "origins, origin, allowed",
    [
        ("*", "http://any.where", "*"),
        ("*", "http://localhost:3000", "http://localhost:3000"),
        ("http://one, http://two", "http://two", "http://two"),
        ("localhost", "http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("localhost", "http://localhost.evil.com", None),
        ("http://one", "http://other", "http://one"),
    ],
)
def test_origins(state: ModelState, origins: str, origin: str, allowed: str | None) -> None:
    client = client_of(state, cors_origins=origins, api_key=(KEY,))
    asked = client.options("/completions", headers={"origin": origin})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert asked.headers.get("access-control-allow-origin") == allowed
    known = "true" if allowed == origin else "false"
    assert asked.headers["access-control-allow-credentials"] == known
    got = client.get("/health", headers={"origin": origin})
    assert got.headers.get("access-control-allow-origin") == allowed


@pytest.mark.parametrize(
    "host, status",
    [
        ("example.com", 403),
        ("example.com:80", 403),
        ("localhost.example.com", 403),
        ("127.0.0.1.example.com", 403),
        ("[::1", 403),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("192.168.7.7:8080", 200),
        ("LOCALHOST", 200),
        ("box.local:8080", 200),
        ("host.docker.internal:8080", 200),
        ("proxy.example", 200),
        ("", 200),
    ],
)
def test_hosts(state: ModelState, host: str, status: int) -> None:
    client = client_of(state, allowed_host=("proxy.example",))
    got = client.get("/health", headers={"host": host})
    assert got.status_code == status
    assert client_of(state, allowed_host=("*",)).get("/health").status_code == 200
    if status != 200:
        assert got.json()["error"] == {
            "code": 403,
            "message": f"{host!r} is not a known host name of this server; add it with"
            " --allowed-host",
            "type": "permission_error",
        }


OTHER, LISTED = "http://example.com", "http://app.example"
CHANGES = {
    ("POST", "/models"),
    ("DELETE", "/models"),
    ("POST", "/models/load"),
    ("POST", "/models/unload"),
    ("DELETE", "/v1/stream"),
    ("POST", "/props"),
    ("POST", "/slots/{id_slot}"),
    ("POST", "/lora-adapters"),
    ("POST", "/api/pull"),
    ("DELETE", "/api/delete"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("POST", "/api/push"),
    ("POST", "/api/blobs/{digest}"),
    ("GET", "/tools"),
    ("POST", "/tools/call"),
}


PUBLIC_PATHS = {"/health", "/v1/health", *page.PATHS}
OF_MCP = {("POST", "/mcp"), ("DELETE", "/mcp")} if find_spec("mcp") else set()


def test_every_route_asks_who_it_is(state: ModelState) -> None:
    how: Any = {"api_key": (KEY,), "cors_origins": f"*, {LISTED}", "mcp_serve": bool(OF_MCP)}
    client = client_of(state, Toolbox(SimpleNamespace(tools={})), **how)  # type: ignore[arg-type]
    made: Any = client.app
    right, wrong = {"x-api-key": KEY}, {"x-api-key": f"{KEY}x"}
    changes, public = set(), set()
    for route in made.routes:
        for method in route.methods - {"HEAD"}:

            def ask(**headers: str) -> httpx.Response:
                path = route.path_format.format(id_slot=0, name="x", digest="x")  # noqa: B023
                return client.request(method, path, content=b"{", headers=headers)  # noqa: B023

            keyless = {ask().status_code == 401, ask(**wrong).status_code == 401}
            assert len(keyless) == 1
            public |= set() if True in keyless else {route.path}
            assert ask(**right).status_code != 401
            assert ask(**right, host="example.com").status_code == 403
            if "pages of" in ask(**right, origin=OTHER).text:
                changes.add((method, route.path))
            assert ("pages of" in ask(**right, origin="null").text) is (
                (method, route.path) in changes
            )
            for origin in (LISTED, "http://127.0.0.1:1", LOCAL):
                assert "pages of" not in ask(**right, origin=origin).text
    assert changes == CHANGES | OF_MCP
    assert public == PUBLIC_PATHS


def test_a_model_that_is_being_loaded() -> None:
    response = client_of(None).get("/health")
    assert response.status_code == 503
    assert response.json()["error"] == {
        "code": 503,
        "message": "Loading model",
        "type": "unavailable_error",
    }


def test_large_requests(state: ModelState) -> None:
    client = client_of(state, max_body=1)
    large = b'{"content": "' + b"a" * (1 << 20) + b'"}'
    for content in (large, iter([large[:100], large[100:]])):  # with its length, and without
        response = client.post("/tokenize", content=content)
        assert response.status_code == 413
        assert response.json()["error"]["type"] == "request_too_large"


def test_a_server_without_images_limits_its_bodies_more() -> None:
    limits = ListenParams().body_limits()
    assert (limits[False][0], limits[True][0]) == (16 << 20, 64 << 20)
    assert limits[False][1] < limits[True][1]
    of_both = ListenParams(max_body=3, max_bodies=5).body_limits()
    assert of_both[False] == of_both[True] == (3 << 20, 5 << 20)


def test_slow_requests(state: ModelState) -> None:
    made = client_of(state, timeout_read=1).app
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(2 * WAIT)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/tokenize",
        "headers": [],
        "query_string": b"",
        "root_path": "",
    }
    asyncio.run(asyncio.wait_for(made(scope, never, send), WAIT))
    assert sent[0]["status"] == 413


def test_a_full_queue(state: ModelState, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise Busy("as many wait as may")

    monkeypatch.setattr(state.engine, "submit", full)
    for stream in (False, True):
        body = {"prompt": "a", "stream": stream}
        response = client_of(state).post("/completion", json=body)
        assert response.status_code == 503
        assert response.json()["error"]["type"] == "unavailable_error"


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_is_not_answered(state: ModelState, stream: bool) -> None:
    """The client leaves after its request, or after the first event."""
    made = client_of(state).app
    body = b'{"prompt": "a", "n_predict": 400, "ignore_eos": true, "stream": %s}' % (
        b"true" if stream else b"false"
    )

    def has_begun(sent: list[Any]) -> bool:
        any_tokens = any(a.tokens for a in running(state).values())
        return any_tokens and (bool(sent) or not stream)

    before = state.engine.metrics().total.ended["cancelled"]
    with held(state.engine, 9):  # it is not done before the client has left
        asyncio.run(leave(made, "/completion", body, has_begun))
    until(lambda: state.engine.metrics().total.ended["cancelled"] > before)
    assert state.engine.metrics().total.ended["cancelled"] == before + 1
    assert not running(state) and all(s.state == "idle" for s in state.engine.slots())
