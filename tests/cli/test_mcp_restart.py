"""MCP servers that end: one more start, what the user and the model see, and time limits."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llama_py_tools.mcp.config import ServerConfig
from llama_py_tools.mcp.servers import ToolServers
from tests.server.served import until
from tests.support import mcp_server
from tests.support.limits import SECONDS

pytest.importorskip("mcp", reason="needs the extra mcp")

SECRET = "sesame-123"
ENDED = "MCP server 'small': it has ended"
AGAIN = "MCP server 'small' had ended; it was started again"
NO_MORE = "MCP server 'small': it has ended again, and is not started a third time"


def config(variant: str, folder: Path) -> ServerConfig:
    env = {"TOKEN": SECRET, "MARK": str(folder / "mark")}
    return ServerConfig("small", sys.executable, (mcp_server.__file__, variant), env)


@contextmanager
def started(variant: str, folder: Path, seconds: float = SECONDS) -> Iterator[ToolServers]:
    with ToolServers([config(variant, folder)], seconds) as found:
        assert not found.failures
        yield found


def end(servers: ToolServers) -> None:
    """Let the server end during a call, which then has an error."""
    result = servers.call("add", {"a": 1, "b": 2})
    assert result.is_error and result.text == result.failure and not result.notice
    assert result.text.startswith(ENDED) and SECRET not in result.text


def test_an_ended_server_is_started_once_more(tmp_path: Path) -> None:
    with started("exits", tmp_path) as found:
        end(found)
        errors: Any = found._connections["small"]._errors
        until(lambda: errors.last)  # a thread reads it
        again = found.call("echo", {"text": "hello"})
        assert (again.text, again.is_error, again.failure) == ("hello", False, "")
        assert again.notice == f"{AGAIN} (its last line: no more, ***)"
        assert found.call("echo", {"text": "x"}).notice == ""
        end(found)
        for _ in range(2):
            last = found.call("echo", {"text": "hello"})
            assert last.is_error and last.failure == last.text and not last.notice
            assert last.text.startswith(NO_MORE) and SECRET not in last.text


def test_a_server_that_ends_between_calls(tmp_path: Path) -> None:
    with started("leaves", tmp_path) as found:
        assert found.call("echo", {"text": "1"}).text == "1"
        until(lambda: found._connections["small"]._client is None)
        again = found.call("echo", {"text": "2"})
        assert (again.text, again.is_error, again.notice) == ("2", False, AGAIN)


@pytest.mark.parametrize(
    ("variant", "seconds", "why"),
    [
        ("once-mute", 3.0, "MCP server 'small': no reply within 3 s"),
        ("once-dead", SECONDS, ENDED),
        ("once-malformed", SECONDS, "MCP server 'small': its reply does not have the form"),
    ],
)
def test_a_second_start_that_fails(tmp_path: Path, variant: str, seconds: float, why: str) -> None:
    with started(variant, tmp_path, seconds) as found:
        end(found)
        again = found.call("echo", {"text": "hello"})
        assert again.is_error and again.failure.startswith(why)
        assert again.notice.startswith(AGAIN)
        assert found.call("echo", {"text": "hello"}).failure.startswith(NO_MORE)


def test_calls_at_the_same_time_start_one_server(tmp_path: Path) -> None:
    with started("exits", tmp_path) as found, ThreadPoolExecutor(4) as pool:
        end(found)
        results = [*pool.map(lambda i: found.call("echo", {"text": str(i)}), range(4))]
    assert [one.text for one in results] == ["0", "1", "2", "3"]
    assert sorted(bool(one.notice) for one in results) == [False, False, False, True]


def test_a_cancelled_call_does_not_stop_the_start(tmp_path: Path) -> None:
    with started("exits", tmp_path) as found:
        end(found)
        found.submit("echo", {"text": "1"}).cancel()
        until(lambda: found._connections["small"]._is_restarted)
        assert found.call("echo", {"text": "2"}).text == "2"


def test_the_end_during_a_second_start(tmp_path: Path) -> None:
    with started("once-mute", tmp_path) as found:
        end(found)
        waiting = found.submit("echo", {"text": "1"})
        until(lambda: found._connections["small"]._is_restarted)
    assert "mcp" not in {one.name for one in threading.enumerate()}
    assert not waiting.done() or waiting.result()[1]


class Session(BaseHTTPRequestHandler):
    """An MCP server over HTTP with sessions, of which it knows the newest only."""

    newest = 1

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        given = self.headers.get("mcp-session-id")
        if given is not None and given != str(Session.newest):
            self._reply(404, None)
        elif "id" not in message:
            self._reply(202, None)
        else:
            found = mcp_server.answer("plain", message)
            error = {"code": -32601, "message": "method not found"}
            result = {"error": error} if found is None else {"result": found}
            self._reply(200, {"jsonrpc": "2.0", "id": message["id"], **result})

    def do_GET(self) -> None:
        self._reply(405, None)

    do_DELETE = do_GET

    def _reply(self, status: int, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if data else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("mcp-session-id", str(Session.newest))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Print no log."""


def test_a_url_that_has_lost_its_session() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Session)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        one = ServerConfig("web", url=f"http://127.0.0.1:{server.server_port}/mcp")
        with ToolServers([one], SECONDS) as found:
            assert found.call("echo", {"text": "1"}).text == "1"
            Session.newest += 1
            assert found.call("echo", {"text": "2"}).is_error
            again = found.call("echo", {"text": "3"})
        assert again.text == "3"
        assert again.notice == "MCP server 'web' had ended; it was connected again"
    finally:
        server.shutdown()
        server.server_close()
