"""The command behind a real socket, with the clients that people use."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.served import ASK, SMALL, TOOL, talking
from tests.support.limits import SECONDS

KEY = "a-secret"
WAIT = SECONDS


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a server on a port of its own, and on a unix socket. What it tells goes to a file: a
    pipe that nobody reads would be full one day."""
    folder = tmp_path_factory.mktemp("s")
    unix, told = folder / "a.sock", folder / "told"
    code = "import sys; from llama_py_server.command import main; sys.exit(main())"
    flags = (*SMALL, *talking(), "--embeddings", "--api-key", KEY, "--port", "0")
    with told.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *flags, "--host", f"127.0.0.1,{unix}"], stderr=out
        )
    try:
        until = time.monotonic() + WAIT
        while not (at := re.search(r"http://\S+(?=\n)", told.read_text())):
            assert time.monotonic() < until and process.poll() is None, told.read_text()
            time.sleep(0.1)
        found = at[0]
        while httpx.get(f"{found}/health", timeout=WAIT).status_code != 200:
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(unix)), timeout=WAIT) as client:
            assert client.get("http://unix/health").json() == {"status": "ok"}
        yield found
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0 and not unix.exists()
    finally:
        process.kill()
        process.wait()


def test_openai(url: str) -> None:
    import openai  # here, as every process that collects tests would wait for it

    with openai.OpenAI(api_key=KEY, base_url=f"{url}/v1") as client:
        text: Any = client.completions
        asked = {"model": "demo", "prompt": "ROMEO:", "max_tokens": 8}
        parts = [c.choices[0].text for c in text.create(**asked, stream=True)]
        assert len(parts) > 2 and "".join(parts) == text.create(**asked).choices[0].text
        chat: Any = client.chat.completions
        how = {"model": "demo", "messages": ASK, "max_tokens": 100}
        tools = {"tools": [TOOL], "tool_choice": "required"}
        called = chat.create(**how, **tools).choices[0].message.tool_calls[0].function
        assert called.name == "weather" and "place" in json.loads(called.arguments)
        deltas = [c.choices[0].delta for c in chat.create(**how, **tools, stream=True)]
        calls = [d.tool_calls[0].function for d in deltas if d.tool_calls]
        assert "".join(f.arguments or "" for f in calls) == called.arguments
        assert client.models.list().data[0].id == "demo"
        rows = client.embeddings.create(model="demo", input=["a text", "b"]).data
        assert len(rows) == 2 and abs(sum(x * x for x in rows[0].embedding) - 1) < 1e-3
        respond: Any = client.responses
        whole = respond.create(model="demo", input="Who are you?")
        with respond.stream(model="demo", input="Who are you?") as events:
            last = [*events][-1]
        assert last.type == f"response.{whole.status}"
        kinds = [item.type for item in last.response.output]
        assert kinds == [item.type for item in whole.output] != []
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0).models.list()


def test_anthropic(url: str) -> None:
    import anthropic  # as above

    with anthropic.Anthropic(api_key=KEY, base_url=url) as client:
        messages: Any = client.messages
        asked = {"model": "demo", "max_tokens": 12, "messages": ASK}
        whole = messages.create(**asked)
        with messages.stream(**asked) as stream:
            final = stream.get_final_message()
        assert [b.to_dict() for b in final.content] == [b.to_dict() for b in whole.content] != []
        tool = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
        how = {**asked, "max_tokens": 100, "tools": [tool], "tool_choice": {"type": "any"}}
        with messages.stream(**how) as stream:
            called = stream.get_final_message()
        assert called.stop_reason == "tool_use" and "place" in called.content[-1].input
        counted = messages.count_tokens(model="demo", messages=ASK)
        cached = whole.usage.cache_read_input_tokens or 0
        assert counted.input_tokens == whole.usage.input_tokens + cached


def test_tls_needs_both_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from llama_py_server.command import main

    with pytest.raises(SystemExit) as e:
        main(["--ssl-key-file", "a.pem"])
    assert e.value.code == 2
    assert main(["--ssl-key-file", "a.pem", "--ssl-cert-file", "b.pem", "--port", "0"]) == 1
    assert "TLS" in capsys.readouterr().err
