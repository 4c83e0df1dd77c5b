"""Tools of MCP servers for the page: their routes, and calls in a browser."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.routes import tools
from llama_py_server.routes.tools import Toolbox, open_toolbox
from llama_py_tools.mcp.params import McpParams
from tests.server.chat_page import Page, on_a_socket
from tests.server.served import LOCAL, holding, leave, served, template, until
from tests.support import mcp_server
from tests.support.scripts import use_script

pytest.importorskip("mcp", reason="needs the extra mcp")

SECRET = "sesame-123"
SUM = {"name": "add", "arguments": {"a": 20, "b": 22}}
CALL = f"<tool_call>\n{json.dumps(SUM)}\n</tool_call>"


def write(folder: Path, **variants: str) -> str:
    """The file of servers by their names."""
    found = {
        name: {
            "command": sys.executable,
            "args": [mcp_server.__file__, variant],
            "env": {"TOKEN": SECRET},
        }
        for name, variant in variants.items()
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": found}))
    return str(file)


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolbox]:
    folder = tmp_path_factory.mktemp("tools")
    file = write(folder, one="plain", two="silent", three="secret", four="dead")
    found = open_toolbox(McpParams(mcp=file, mcp_timeout=30.0))
    yield found
    found.close()


def client_of(
    state: ModelState, toolbox: Toolbox, address: tuple[str, int] = ("127.0.0.1", 1), **how: Any
) -> TestClient:
    made = app(holding(state), ListenParams(**how), toolbox=toolbox)
    return TestClient(made, LOCAL, raise_server_exceptions=False, client=address)


def test_tools_and_calls(state: ModelState, toolbox: Toolbox) -> None:
    client = client_of(state, toolbox)
    found = client.get("/tools").json()
    names = [tool["function"]["name"] for tool in found["tools"]]
    assert found["steps"] == 10 and {"one_add", "two_add", "three_add"} <= {*names}
    assert client.get("/v1/models").json()["mcp_tools"] is True
    called = client.post("/tools/call", json={**SUM, "name": "one_add"})
    assert called.json() == {"text": "42", "is_error": False}
    secret = client.post("/tools/call", json={**SUM, "name": "three_add"}).json()
    assert secret["text"] == "the token is ***"


def test_a_server_that_does_not_start(toolbox: Toolbox) -> None:
    assert toolbox.servers is not None
    (failure,) = toolbox.servers.failures
    assert failure.startswith("MCP server 'four': it has ended") and SECRET not in failure


def test_a_server_that_is_started_again(state: ModelState, tmp_path: Path) -> None:
    found = open_toolbox(McpParams(mcp=write(tmp_path, small="exits"), mcp_timeout=30.0))
    try:
        client = client_of(state, found)
        ended = client.post("/tools/call", json=SUM).json()
        assert ended["is_error"] and "it has ended" in ended["text"] and SECRET not in ended["text"]
        body = {"name": "echo", "arguments": {"text": "hello"}}
        again = client.post("/tools/call", json=body).json()
        assert (again["text"], again["is_error"]) == ("hello", False)
        assert again["notice"].startswith("MCP server 'small' had ended; it was started again")
        assert client.post("/tools/call", json=body).json() == {"text": "hello", "is_error": False}
    finally:
        found.close()


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        (("127.0.0.1", 1), {}, 200),
        (("::1", 1), {}, 200),
        (("10.0.0.1", 1), {}, 403),
        (("127.0.0.1", 1), {"x-forwarded-for": "10.0.0.1"}, 403),
        (("127.0.0.1", 1), {"origin": "http://example.com"}, 403),
        (("127.0.0.1", 1), {"origin": "null"}, 403),
        (("127.0.0.1", 1), {"origin": LOCAL}, 200),
        (("127.0.0.1", 1), {"host": "example.com"}, 403),
    ],
)
def test_clients(
    state: ModelState,
    toolbox: Toolbox,
    address: tuple[str, int],
    headers: dict[str, str],
    status: int,
) -> None:
    client = client_of(state, toolbox, address)
    called = client.post("/tools/call", json={**SUM, "name": "one_add"}, headers=headers)
    assert called.status_code == status
    assert client.get("/tools", headers=headers).status_code == status


def test_a_key_permits_other_machines(state: ModelState, toolbox: Toolbox) -> None:
    client = client_of(state, toolbox, ("10.0.0.1", 1), api_key=("key",))
    assert client.get("/tools").status_code == 401
    assert client.get("/tools", headers={"x-api-key": "key"}).status_code == 200


def test_the_routes_exist_with_the_option_only(client: TestClient) -> None:
    assert client.get("/tools").status_code == 404
    assert client.post("/tools/call", json=SUM).status_code == 404
    assert "mcp_tools" not in client.get("/v1/models").json()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": 5}',
        b'{"name": "rm"}',
        b'{"name": "one_add", "arguments": []}',
        b'{"name": "one_add", "arguments": "{}"}',
        b'{"name": "one_add", "arguments": null}',
        b'{"name": "one_add", "arguments": ' + b'{"a":' * 200 + b"1" + b"}" * 201,
    ],
)
def test_wrong_calls(state: ModelState, toolbox: Toolbox, body: bytes) -> None:
    assert client_of(state, toolbox).post("/tools/call", content=body).status_code == 400


def test_a_large_call_is_refused(state: ModelState, toolbox: Toolbox) -> None:
    given = {"name": "echo", "arguments": {"text": "x" * (1 << 20)}}
    assert client_of(state, toolbox).post("/tools/call", json=given).status_code == 413


def test_calls_in_parallel_have_a_limit(
    state: ModelState, toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that leaves ends its call, and frees its place."""
    monkeypatch.setattr(tools, "MAX_CALLS", 1)
    client, refused = client_of(state, toolbox), list[int]()
    made: Any = client.app
    silent = json.dumps({**SUM, "name": "two_add"}).encode()

    async def at_home(scope: Any, receive: Any, send: Any) -> None:
        await made({**scope, "client": ("127.0.0.1", 1)}, receive, send)

    def begun(_: Any) -> bool:
        return bool(toolbox.running)

    def call_and_leave() -> None:
        sent.extend(asyncio.run(leave(at_home, "/tools/call", silent, lambda _: bool(refused))))

    sent: list[Any] = []
    thread = threading.Thread(target=call_and_leave)
    thread.start()
    until(lambda: begun(None))
    refused.append(client.post("/tools/call", json={**SUM, "name": "one_add"}).status_code)
    thread.join()
    assert refused == [503] and not toolbox.running
    assert [one["status"] for one in sent if "status" in one] == [499]
    assert client.post("/tools/call", json={**SUM, "name": "one_add"}).status_code == 200


def test_calls_in_a_browser(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decline, allow, always; the limit of steps; a question that is stopped; a reload."""
    declined, allowed = [CALL, "No sum."], [CALL, CALL, "It is 42."]
    script = [*declined, *allowed, CALL, CALL, CALL, CALL]
    left = use_script(monkeypatch, *script)
    flags = ("--chat-template", template("Qwen-Qwen2.5-7B-Instruct"), "-n", "200", "-c", "4096")
    with (
        served("--mcp", write(tmp_path, small="plain"), "--mcp-steps", "2", *flags) as (client, _),
        on_a_socket(client) as address,
    ):
        page = Page(browser, address)
        page.new()
        page.say("What is 20 + 22?")
        page.until(lambda: page.seen("section.call b") == ["add"])
        assert json.loads(page.seen("section.call pre")[0]) == SUM["arguments"]
        page.click(".consent button:last-child")
        page.until(lambda: page.texts() and page.seen(".message .text")[-1] == "No sum.")

        page.press("Regenerate", ".message.assistant")
        page.click(".consent button:nth-child(2)")
        page.until(lambda: page.texts() and page.seen(".message .text")[-1] == "It is 42.")
        page.until(lambda: len(page.all("details.call")) == 2)
        page.click("details.call summary")
        assert page.seen("details.call pre")[-1] == "42"

        page.driver.refresh()  # the browser keeps the calls, and asks again
        page.until(lambda: len(page.all("details.call")) == 2)
        page.press("Regenerate", ".message.assistant")
        page.click(".consent button:nth-child(2)")
        page.until(lambda: "too many calls of tools" in "".join(page.seen(".rate")))
        page.driver.refresh()
        page.until(lambda: len(page.all("details.call")) == 2)
        page.press("Regenerate", ".message.assistant")
        page.until(lambda: page.seen("section.call b"))
        page.press("Stop")
        page.until(lambda: "stopped" in "".join(page.seen(".rate")))
        assert not left and not page.driver.get_log("browser")


def test_a_notice_of_a_server_that_is_started_again(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = json.dumps({"name": "echo", "arguments": {"text": "hello"}})
    left = use_script(monkeypatch, CALL, f"<tool_call>\n{echo}\n</tool_call>", "So it is.")
    flags = ("--chat-template", template("Qwen-Qwen2.5-7B-Instruct"), "-n", "200", "-c", "4096")
    with (
        served("--mcp", write(tmp_path, small="exits"), *flags) as (client, _),
        on_a_socket(client) as address,
    ):
        page = Page(browser, address)
        page.new()
        page.say("Repeat it.")
        for name in ("add", "echo"):
            page.until(lambda: page.seen("section.call b") == [name])  # noqa: B023
            page.click(".consent button:first-child")
        page.until(lambda: page.texts() and page.seen(".message .text")[-1] == "So it is.")
        assert "it was started again" in page.seen(".notice")[0]
        assert not left and not page.driver.get_log("browser")


def test_tools_in_the_settings(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their list, and their switch. Text of models and tools is no markup."""
    hostile = "<img src=x onerror=document.title='taken'>\u202e"
    call = json.dumps({"name": "echo", "arguments": {"text": hostile}})
    use_script(monkeypatch, f"<tool_call>\n{call}\n</tool_call>", "So it is.", CALL)
    flags = ("--chat-template", template("Qwen-Qwen2.5-7B-Instruct"), "-n", "200", "-c", "4096")
    with (
        served("--mcp", write(tmp_path, small="plain"), *flags) as (client, _),
        on_a_socket(client) as address,
    ):
        page = Page(browser, address)
        page.new()
        page.press("Settings")
        page.until(lambda: page.seen(".tools label") == ["Use 2 tools"])
        page.say("Repeat it.")
        page.until(lambda: page.seen("section.call pre"))
        assert r"\u{202e}" in page.seen("section.call pre")[0]
        page.click(".consent button:first-child")
        page.until(lambda: page.texts() and page.seen(".message .text")[-1] == "So it is.")
        page.click("details.call summary")
        assert page.seen("details.call pre")[-1] == hostile.replace("\u202e", r"\u{202e}")
        assert browser.title != "taken" and not page.all(".messages img")

        page.click("input[name=tools]")
        page.new()
        page.say("What is 20 + 22?")
        page.until(lambda: page.texts() and "<tool_call>" in page.seen(".message .text")[-1])
        assert not page.all(".call")
        page.click("input[name=tools]")
