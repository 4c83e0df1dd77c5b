"""llama-py mcp: the tools over stdin and stdout, what stdout has, and how the program ends."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server import stdio
from llama_py_server.app import app
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.stream.replies import running
from tests.server.served import holding, until
from tests.serving.engines import held
from tests.support.commands import DEMO, SCRIPTS, clean_environment, heed_interrupts, refused, run
from tests.support.limits import SECONDS

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client, StdioServerParameters, stdio_client

FLAGS = ("-c", "2048", "-np", "1", "--temp", "0", "--no-warmup")
HELLO = [{"role": "user", "content": "Who is there?"}]
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def with_client(mode: str, log: Path, *flags: str, calls: list[tuple[str, dict[str, Any]]]) -> Any:
    """Tools, and texts and error of each call, by the official client."""
    how = StdioServerParameters(
        command=str(SCRIPTS / "llama-py"), args=["mcp", *FLAGS, *flags], env=clean_environment()
    )

    async def ask() -> Any:
        with log.open("w") as errors:
            transport = stdio_client(how, errors)
            async with Client(transport, mode=mode, read_timeout_seconds=SECONDS) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                found = [await client.call_tool(name, given) for name, given in calls]
                texts = [([block.text for block in one.content], one.is_error) for one in found]
                return tools, texts

    return asyncio.run(ask())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_are_those_of_the_server(mode: str, client: TestClient, tmp_path: Path) -> None:
    asked = {"prompt": "ROMEO:", "max_tokens": 4, "temperature": 0}
    calls = [
        ("chat", {"messages": HELLO, "max_tokens": 4}),
        ("complete", asked),
        ("tokenize", {"content": "ROMEO:"}),
        ("embed", {"input": "one"}),
        ("chat", {"messages": HELLO, "stream": True}),
        ("chat", {"messages": 5}),
        ("complete", {"prompt": "ROMEO:", "max_tokens": "many"}),
    ]
    tools, found = with_client(mode, tmp_path / "log", calls=calls)
    chat, complete, tokenize, *wrong = found
    text = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    ids = client.post("/tokenize", json={"content": "ROMEO:"}).json()["tokens"]
    assert [*tools] == ["chat", "complete", "tokenize"]
    assert chat[0][0] and not chat[1] and complete == ([text, "(max_tokens is reached)"], False)
    assert tokenize == ([json.dumps(ids)], False)
    assert [is_error for _, is_error in wrong] == [True] * 4
    assert "unknown tool 'embed'" in wrong[0][0][0] and "max_tokens" in wrong[3][0][0]
    assert "\nready: demo\n" in f"\n{(tmp_path / 'log').read_text()}"


def test_embeddings(tmp_path: Path) -> None:
    flags = ("--embeddings", "--pooling", "mean")
    calls = [("embed", {"input": ["one", "two"]})]
    tools, [(texts, is_error)] = with_client("auto", tmp_path / "log", *flags, calls=calls)
    assert "embed" in tools and not is_error
    one, two = json.loads(texts[0])
    assert len(one) == len(two) > 8 and one != two


def test_several_models(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("romeo", "juliet"):
        shutil.copy(DEMO, folder / f"{name}.gguf")
    given = {"content": "ROMEO:"}
    calls = [("tokenize", {**given, "model": "romeo"}), ("tokenize", given)]
    calls += [("tokenize", {**given, "model": "tybalt"})]
    flags = ("--models-dir", str(folder))
    tools, (ids, nameless, unknown) = with_client("auto", tmp_path / "log", *flags, calls=calls)
    schema = tools["chat"].input_schema
    assert schema["properties"]["model"]["enum"] == ["juliet", "romeo"]
    assert schema["required"] == ["messages", "model"]
    assert json.loads(ids[0][0]) and not ids[1]
    assert nameless[1] and unknown == (["model 'tybalt' not found"], True)


@contextmanager
def started(*flags: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [str(SCRIPTS / "llama-py"), "mcp", *FLAGS, *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        preexec_fn=heed_interrupts if sys.platform != "win32" else None,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[str], method: str, id: int | None = None, **params: Any) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    assert process.stdin is not None
    process.stdin.write(json.dumps(message if id is None else {**message, "id": id}) + "\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_stdout_has_messages_only() -> None:
    """With all logs, and lines that are no messages."""
    with started("-v", "--log-timestamps", "--log-prefix") as process:
        assert process.stdin is not None
        process.stdin.write("\n{\nnull\n[1]\n\x00\n")
        send(process, "initialize", 1, **INITIALIZE)
        send(process, "notifications/initialized")
        send(process, "no/such", 2)
        send(process, "tools/call", 3, name="tokenize", arguments={"content": "ROMEO:"})
        found = [receive(process) for _ in range(3)]
        rest, errors = process.communicate(timeout=SECONDS)  # closes stdin
    assert [one["id"] for one in found] == [1, 2, 3] and "error" in found[1]
    assert not found[2]["result"]["isError"]
    assert (process.returncode, rest) == (0, "")
    assert "ready: demo" in errors and "Traceback" not in errors


def test_printed_text_is_not_on_stdout() -> None:
    """It stays in Python's buffer until the end, or is written at once."""
    code = (
        "import sys; from llama_py_server import stdio; true = stdio.open_pool\n"
        "def noisy(args): print('stray', flush=True); print('stray'); return true(args)\n"
        "stdio.open_pool = noisy; sys.exit(stdio.main(sys.argv[1:]))"
    )
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})
    done = subprocess.run(
        [sys.executable, "-c", code, *FLAGS],
        input=f"{message}\n",
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=SECONDS,
    )
    assert done.returncode == 0 and done.stderr.count("stray") == 2
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]


def test_the_end_of_stdin_ends_a_response() -> None:
    """Also while the model is being loaded."""
    with started() as process:
        send(process, "initialize", 1, **INITIALIZE)
        assert receive(process)["id"] == 1
        given = {"prompt": "ROMEO:", "max_tokens": 2000}
        send(process, "tools/call", 2, name="complete", arguments=given)
        rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and "Traceback" not in errors
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())


def test_no_stdin() -> None:
    done = run("llama-py", "mcp", *FLAGS)
    assert (done.returncode, done.stdout) == (0, "") and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals end programs differently")
def test_ctrl_c() -> None:
    with started() as process:
        send(process, "initialize", 1, **INITIALIZE)
        assert receive(process)["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stdout is not None and process.stdout.read() == ""


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    """The program ends, although stdin is open."""
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with started("-m", str(tmp_path / "bad.gguf")) as process:
        assert process.wait(SECONDS) == 1
        assert process.stdout is not None and process.stderr is not None
        done = subprocess.CompletedProcess([], 1, process.stdout.read(), process.stderr.read())
    assert "bad.gguf" in refused(done)


def test_a_message_above_the_limit() -> None:
    with started() as process:
        with suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write("x" * (17 << 20))
            process.stdin.flush()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert "error: a message has more than 16 MiB" in process.stderr.read()


def test_a_reader_that_leaves() -> None:
    with started() as process:
        assert process.stdout is not None
        process.stdout.close()
        send(process, "initialize", 1, **INITIALIZE)
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_cancelled_call_ends_its_response(state: ModelState) -> None:
    made = app(holding(state), ListenParams())

    async def ready() -> None:
        pass

    async def call_and_cancel() -> None:
        server = made.state.model_tools.build_server(stdio.local_request(made), ready)
        given = {"prompt": "ROMEO:", "max_tokens": 1500}
        async with Client(server) as client:
            call = asyncio.ensure_future(client.call_tool("complete", given))
            while not any(one.tokens for one in running(state).values()):
                await asyncio.sleep(0.01)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call

    before = state.engine.metrics().total.ended["cancelled"]
    with held(state.engine, 9):  # it is not done before it is cancelled
        asyncio.run(asyncio.wait_for(call_and_cancel(), SECONDS))
    until(lambda: state.engine.metrics().total.ended["cancelled"] > before)
    assert not running(state) and all(s.state == "idle" for s in state.engine.slots())


def test_without_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert stdio.main([*FLAGS]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "error: llama-py mcp needs mcp: pip install" in shown.err
