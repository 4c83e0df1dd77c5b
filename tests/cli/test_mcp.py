"""Tools of MCP servers in a chat: honest and hostile servers, questions, the loop."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py_tools.generate import cli
from llama_py_tools.generate.chat import saved, tool_calls
from llama_py_tools.mcp import servers, transport
from llama_py_tools.mcp.config import ServerConfig, read_servers
from llama_py_tools.mcp.servers import ToolServers
from tests.server.served import template
from tests.support import mcp_server
from tests.support.limits import SECONDS
from tests.support.scripts import use_script

pytest.importorskip("mcp", reason="needs the extra mcp")

SECRET = "sesame-123"
SUM = '<tool_call>\n{"name": "add", "arguments": {"a": 20, "b": 22}}\n</tool_call>'
FORBIDDEN = ("Traceback", "\x1b[2J", "\x07", SECRET)


def config(variant: str, name: str = "small", **more: Any) -> ServerConfig:
    env = {"TOKEN": SECRET}
    return ServerConfig(name, sys.executable, (mcp_server.__file__, variant), env, **more)


@contextmanager
def started(*variants: str, seconds: float = SECONDS) -> Iterator[ToolServers]:
    with ToolServers([config(v, f"s{i}") for i, v in enumerate(variants)], seconds) as found:
        yield found


@pytest.fixture
def chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Any:
    """What a chat with a server prints, whose responses follow a script."""

    def run(
        variant: str, script: list[str], *flags: str, typed: tuple[str, ...] = ("What is it?",)
    ) -> tuple[str, str]:
        file = tmp_path / "mcp.json"
        args = [mcp_server.__file__, variant]
        one = {"command": sys.executable, "args": args, "env": {"TOKEN": "${WORD}"}}
        file.write_text(json.dumps({"mcpServers": {"small": one}}))
        monkeypatch.setenv("WORD", SECRET)
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed) + "\n"))
        left = use_script(monkeypatch, *script)
        how = ["-cnv", "-c", "2048", "-n", "200", "--no-warmup", "--no-perf"]
        with_tools = ["--chat-template", template("Qwen-Qwen2.5-7B-Instruct"), "--mcp", str(file)]
        assert cli.main([*how, *with_tools, *flags]) == 0
        assert not left
        shown = capsys.readouterr()
        assert not any(one in shown.out + shown.err for one in FORBIDDEN)
        return shown

    return run


def test_a_call_and_the_response_to_its_result(chat: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    typed = ("What is 20 + 22?", f"/save {file}", "/clear", f"/load {file}", f"/save {file}")
    shown = chat("plain", [SUM, "It is 42."], "--mcp-allow", "add", typed=typed)
    assert shown.out.strip() == "It is 42."
    assert '2 tools: add, echo\nadd {"a": 20, "b": 22}\n  42\n' in shown.err
    messages, _ = saved.load(file)
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"] == "42"


def test_a_pipe_cannot_be_asked(chat: Any) -> None:
    shown = chat("plain", [SUM, "No."])
    assert f"({tool_calls.NO_TERMINAL})" in shown.err and "  42" not in shown.err


def test_questions(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """no; anything else, then yes; always, which is the last question."""
    answers, seen = iter(["n", "what?", "yes", "A"]), []
    monkeypatch.setattr(tool_calls, "is_terminal", lambda: True)

    def ask(question: str) -> str | None:
        seen.append(question)
        return next(answers)

    monkeypatch.setattr(tool_calls, "ask", ask)
    shown = chat("plain", [SUM, SUM, SUM, SUM, "It is 42."])
    assert len(seen) == 4 and shown.err.count("\n  42\n") == 3


def test_the_number_of_steps_has_a_limit(chat: Any) -> None:
    typed = ("What is it?", "And now?")
    script = [SUM, SUM, SUM, "I am done."]
    shown = chat("plain", script, "--mcp-allow", "add", "--mcp-steps", "2", typed=typed)
    assert "(stopped after 2 responses with calls; see --mcp-steps)" in shown.err
    assert shown.err.count("\n  42\n") == 2 and shown.out.strip() == "I am done."


@pytest.mark.parametrize(
    ("variant", "line"),
    [
        ("exits", "error: MCP server 'small': it has ended"),
        ("wrong", "error: MCP server 'small': its reply does not have the form"),
        ("silent", "error: MCP server 'small': no reply within 2 s"),
        ("huge", "error: MCP server 'small': no reply within 2 s"),
        ("garbage", "\n  42\n"),
        ("fails", "\n  42\n"),
        ("escape", "\n  [2J42\n"),
        ("secret", "\n  the token is ***\n"),
        ("image", "\n  [image: image/png; not shown to the model]\n"),
    ],
)
def test_results_of_bad_servers(chat: Any, variant: str, line: str) -> None:
    """The chat continues."""
    shown = chat(variant, [SUM, "So it is."], "--mcp-allow", "add", "--mcp-timeout", "2")
    assert line in shown.err and shown.out.strip() == "So it is."


def test_a_server_that_is_started_again(chat: Any, tmp_path: Path) -> None:
    """The user sees both events, and the model the error of the call."""
    echo = '<tool_call>\n{"name": "echo", "arguments": {"text": "hello"}}\n</tool_call>'
    file = tmp_path / "talk.json"
    typed = ("What is it?", f"/save {file}")
    shown = chat("exits", [SUM, echo, "So it is."], "--mcp-allow", "add,echo", typed=typed)
    assert "error: MCP server 'small': it has ended" in shown.err
    assert "warning: MCP server 'small' had ended; it was started again" in shown.err
    assert "\n  hello\n" in shown.err and shown.out.strip() == "So it is."
    results = [m["content"] for m in saved.load(file)[0] if m["role"] == "tool"]
    assert results[0].startswith("error: MCP server 'small': it has ended")
    assert results[1] == "hello"


@pytest.mark.parametrize(
    ("variant", "line"),
    [
        ("dead", "error: MCP server 'small': it has ended"),
        ("mute", "error: MCP server 'small': no reply within 1 s"),
        ("malformed", "error: MCP server 'small': its reply does not have the form"),
    ],
)
def test_servers_that_do_not_start(chat: Any, variant: str, line: str) -> None:
    shown = chat(variant, ["Good day."], "--mcp-timeout", "1")
    assert line in shown.err and shown.out.strip() == "Good day."


def test_a_long_result_is_cut_to_the_context(chat: Any) -> None:
    shown = chat("long", [SUM, "Long."], "--mcp-allow", "add")
    assert "[cut: the first " in shown.err and shown.out.strip() == "Long."


def test_ctrl_c_during_a_call(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next message is answered; the call has a result."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ToolServers, "call", interrupted)
    monkeypatch.setattr(tool_calls, "is_terminal", lambda: True)
    typed = ("What is it?", "And now?")
    shown = chat("plain", [SUM, "It is 42."], "--mcp-allow", "add", typed=typed)
    assert "(stopped)" in shown.err and shown.out.strip() == "It is 42."


def test_names_are_unique_and_harmless() -> None:
    with started("plain", "controls", "many", "deep") as found:
        assert "a__2J_b" in found.tools and found.tools["a__2J_b"].remote == "a\x1b[2J\nb"
        assert {"s0_add", "s1_add", "s3_add", "echo"} <= found.tools.keys()
        assert found.tools["echo"].server == "s0"
        assert not any("\x1b" in tool.description for tool in found.tools.values())
        assert found.call("s3_add", {"a": 1, "b": 2}).text == "3"
        refused = "\n".join(found.failures)
    assert "'s3': tool 'echo' is ignored" in refused and "only 128 tools are used" in refused


def test_processes_end_with_the_chat(tmp_path: Path) -> None:
    with started("plain", "mute", seconds=3) as found:
        threads = {one.name for one in threading.enumerate()}
        assert found.call("echo", {"text": str(os.getpid())}).text == str(os.getpid())
    assert "mcp" in threads and "mcp" not in {one.name for one in threading.enumerate()}


def test_a_message_above_the_limit_ends_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_MESSAGE", 100)
    decoder = transport.LimitedDecoder("replace")
    assert decoder.decode(b"x" * 90 + b"\n" + b"y" * 90 + "ä".encode()[:1]) and decoder.n_line == 90
    with pytest.raises(ConnectionError):
        decoder.decode(b"y" * 20)


class Hostile(BaseHTTPRequestHandler):
    """An HTTP server that answers with more than the limit, or with another status."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Authorization"] == f"Bearer {SECRET}"
        big = self.path.startswith("/big")
        self.send_response(200 if big else 403)
        kind = "text/event-stream" if "events" in self.path else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Encoding", "gzip" if self.path.startswith("/big-gzip") else "")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(b"data: " if "events" in self.path else b"")
            for _ in range(1000 if big else 1):
                self.wfile.write(b"[" * 4096)

    def log_message(self, *_: Any) -> None:
        """Print no log."""


@pytest.mark.parametrize("path", ["big", "big-gzip", "big-events", "forbidden"])
def test_hostile_http_servers(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_MESSAGE", 1 << 16)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/{path}?key={SECRET}"
        one = ServerConfig("web", url=url, headers={"Authorization": f"Bearer {SECRET}"})
        with ToolServers([one], SECONDS) as found:
            (failure,) = found.failures
        assert failure.startswith("MCP server 'web': ") and SECRET not in failure
        assert "no reply" not in failure and not found.tools
    finally:
        server.shutdown()
        server.server_close()


def test_logs_of_the_libraries_are_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), started("garbage") as found:
        found.call("add", {"a": 1, "b": 2})
    assert {one.name for one in caplog.records} <= {"llama_py", "asyncio"}
    assert SECRET not in caplog.text


WRONG = [
    ("[]", 'must be an object with "mcpServers"'),
    ("{", "is not JSON (line 1: "),
    ('{"mcpServers": {"a": 1}}', "server 'a' must be an object with command or url"),
    ('{"mcpServers": {"a": {}}}', "server 'a' must have either command or url"),
    ('{"mcpServers": {"a": {"command": ""}}}', "server 'a': command must not be empty"),
    ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "args must be a list of strings"),
    ('{"mcpServers": {"a": {"command": "x", "args": [1]}}}', "args must be a string"),
    ('{"mcpServers": {"a": {"command": "x", "env": {"K": 1}}}}', "env.K must be a string"),
    ('{"mcpServers": {"a": {"url": "ftp://h"}}}', "url must begin with http:// or https://"),
    ('{"mcpServers": {"a": {"url": "http://h", "type": "sse"}}}', "type must be stdio or http"),
    ('{"mcpServers": {"a": {"url": "http://h/${NO_SUCH}"}}}', "environment variable NO_SUCH"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_wrong_files(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ModelError) as e:
        read_servers(file)
    assert why in str(e.value) and str(file) in str(e.value)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    one = {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${KEY}"}, "type": "http"}
    two = {"command": "npx", "args": ["-y", "${DIR:-/tmp}"], "alwaysAllow": ["x"]}
    data = {"mcpServers": {"one": one, "two": two, "three": {"disabled": True}}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(data))
    first, second = read_servers(file)
    assert first.headers == {"Authorization": f"Bearer {SECRET}"} and second.args[1] == "/tmp"
    assert SECRET not in repr(first) and first.hide(f"got {SECRET}") == "got ***"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ModelError, match="--mcp needs mcp: pip install"):
        ToolServers([], 1.0)


def test_tools_need_a_chat(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-p", "ROMEO:", "-no-cnv", "-n", "1", "--mcp", "no-file"]) == 1
    assert "error: --mcp needs a chat" in capsys.readouterr().err
    assert servers.MAX_TOOLS == 128


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_keys_before_a_question_do_not_answer_it() -> None:
    from dev.docs.pseudo_terminal import PseudoTerminal

    code = (
        "import select, sys; from llama_py_tools.generate.chat.tool_calls import ask;"
        "print('busy', flush=True); select.select([sys.stdin], [], []); print('got', ask('call? '))"
    )
    with PseudoTerminal([sys.executable, "-c", code], {**os.environ}) as terminal:
        terminal.until("busy")
        terminal.send("y\r")
        terminal.until("call?")
        terminal.send("n\r")
        assert "got y" not in terminal.until("got n")
