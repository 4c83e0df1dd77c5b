"""The models as an MCP server at /mcp: its tools, access, and wrong requests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from ggml_py.errors import ModelError
from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.stream.replies import running
from tests.server.chat_page import on_a_socket
from tests.server.served import LOCAL, holding, leave, served, until
from tests.serving.engines import held
from tests.support.limits import SECONDS

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = [{"role": "user", "content": "Who is there?"}]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[str, TestClient]]:
    """Address and client of a server with embeddings."""
    flags = ("--mcp-serve", "--embeddings", "--pooling", "mean")
    with served(*flags) as (client, _), on_a_socket(client) as found:
        yield found, client


def with_client(address: str, mode: str, *calls: tuple[str, dict[str, Any]]) -> Any:
    """Names of the tools, and texts and error of each call, by the official client."""

    async def ask() -> Any:
        async with Client(f"{address}mcp", mode=mode, read_timeout_seconds=SECONDS) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            found = [await client.call_tool(name, given) for name, given in calls]
            texts = [([block.text for block in one.content], one.is_error) for one in found]
            return names, texts

    return asyncio.run(ask())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools(both: tuple[str, TestClient], mode: str) -> None:
    address, http = both
    names, found = with_client(
        address,
        mode,
        ("chat", {"messages": HELLO, "max_tokens": 4, "temperature": 0}),
        ("complete", {"prompt": "ROMEO:", "max_tokens": 4, "temperature": 0}),
        ("embed", {"input": ["one", "two"]}),
        ("tokenize", {"content": "ROMEO:"}),
        ("delete", {}),
        ("chat", {"messages": HELLO, "stream": True}),
        ("chat", {"messages": 5}),
    )
    chat, complete, embed, tokenize, *wrong = found
    asked = {"prompt": "ROMEO:", "max_tokens": 4, "temperature": 0}
    text = http.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    assert names == ["chat", "complete", "embed", "tokenize"]
    assert chat[0][0] and not chat[1] and complete == ([text, "(max_tokens is reached)"], False)
    assert [len(row) > 8 for row in json.loads(embed[0][0])] == [True, True]
    ids = http.post("/tokenize", json={"content": "ROMEO:"}).json()["tokens"]
    assert tokenize == ([json.dumps(ids)], False)
    assert [is_error for _, is_error in wrong] == [True, True, True]
    assert [texts[0].partition(";")[0] for texts, _ in wrong[:2]] == [
        "unknown tool 'delete'",
        "unknown argument 'stream'",
    ]


def client_of(state: ModelState, **options: Any) -> TestClient:
    made = app(holding(state), ListenParams(mcp_serve=True, **options))
    return TestClient(made, base_url=LOCAL, raise_server_exceptions=False)


def message(method: str = "tools/list", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_without_embeddings(state: ModelState) -> None:
    found = client_of(state).post("/mcp", json=message(), headers=HEADERS).json()
    assert [one["name"] for one in found["result"]["tools"]] == ["chat", "complete", "tokenize"]


def test_access(state: ModelState) -> None:
    """The rules of all paths, and of those that change something for pages."""
    client = client_of(state, api_key=("key",))
    right = {**HEADERS, "x-api-key": "key"}

    def status(**headers: str) -> int:
        return client.post("/mcp", json=message(), headers={**right, **headers}).status_code

    assert status() == 200
    assert client.post("/mcp", json=message(), headers=HEADERS).status_code == 401
    assert status(host="example.com") == 403
    assert status(origin="http://example.com") == 403 and status(origin=LOCAL) == 200
    assert status(**{"content-type": "text/plain"}) == 400
    assert {client.get("/mcp", headers=right).status_code} == {405}
    assert {client.delete("/mcp", headers=right).status_code} == {405}


def test_the_route_exists_with_the_option_only(client: TestClient) -> None:
    assert client.post("/mcp", json=message(), headers=HEADERS).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"7",
        b"null",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0"}',
        json.dumps([message(), message()]).encode(),
        json.dumps(message("no/such")).encode(),
        json.dumps(message("tools/call")).encode(),
        json.dumps(message("tools/call", name=5)).encode(),
        json.dumps(message("tools/call", name="chat", arguments=[])).encode(),
        json.dumps(message("tools/call", name="chat", arguments={"messages": {}})).encode(),
        json.dumps(message("tools/call", name="tokenize", arguments={"content": None})).encode(),
        json.dumps({**message(), "id": {"a": 1}}).encode(),
    ],
)
@pytest.mark.parametrize("version", ["", "2025-06-18", "2026-07-28", "x"])
def test_wrong_messages(state: ModelState, body: bytes, version: str) -> None:
    """Never a fault of the server."""
    more = {"mcp-protocol-version": version} if version else {}
    got = client_of(state).post("/mcp", content=body, headers={**HEADERS, **more})
    assert got.status_code in (200, 202, 400, 404) and b"Traceback" not in got.content
    if got.status_code == 200:
        assert "error" in got.json() or got.json()["result"]["isError"]


def test_a_large_body_is_refused(state: ModelState) -> None:
    body = json.dumps(message(x="x" * (1 << 20)))
    assert client_of(state).post("/mcp", content=body, headers=HEADERS).status_code == 413


def test_a_client_that_leaves_ends_its_response(state: ModelState) -> None:
    given = {"prompt": "ROMEO:", "max_tokens": 1500}
    body = json.dumps(message("tools/call", name="complete", arguments=given)).encode()
    headers = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
    made: Any = client_of(state).app

    async def with_headers(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "headers": headers}, receive, send)

    def begun(_: Any) -> bool:
        return any(one.tokens for one in running(state).values())

    before = state.engine.metrics().total.ended["cancelled"]
    with held(state.engine, 9):  # it is not done before the client has left
        sent = asyncio.run(leave(with_headers, "/mcp", body, begun))
    assert [one["status"] for one in sent if "status" in one] == [499]
    until(lambda: state.engine.metrics().total.ended["cancelled"] > before)
    assert not running(state) and all(s.state == "idle" for s in state.engine.slots())


def test_without_the_package(state: ModelState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ModelError, match="--mcp-serve needs mcp: pip install"):
        client_of(state)
