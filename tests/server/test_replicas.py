"""The balancer of docs/replicas.md, before servers that only say who they are."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.support.commands import ROOT
from tests.support.limits import SECONDS

TIMEOUT = SECONDS


class Replica(ThreadingHTTPServer):
    """Answers with its name, or with 503 if it is not well."""

    def __init__(self, name: str) -> None:
        self.name, self.is_well = name, True
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Replica

    def do_GET(self) -> None:
        self.send_response(200 if self.server.is_well else 503)
        body = self.server.name.encode()
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def balanced(folder: Path) -> Iterator[tuple[httpx.Client, list[Replica]]]:
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        pytest.skip("needs haproxy")
    with ExitStack() as stack:
        replicas = [stack.enter_context(Replica(name)) for name in "ab"]
        for replica in replicas:
            Thread(target=replica.serve_forever, daemon=True).start()
            stack.callback(replica.shutdown)
        front = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        (folder / "haproxy.cfg").write_text(config(front, replicas))
        process = subprocess.Popen(
            [program, "-db", "-f", str(folder / "haproxy.cfg")],
            stdin=subprocess.DEVNULL,
            pass_fds=[front.fileno()],
        )
        stack.callback(process.wait, TIMEOUT)
        stack.callback(process.kill)
        url = f"http://127.0.0.1:{front.getsockname()[1]}"
        yield stack.enter_context(httpx.Client(base_url=url, timeout=TIMEOUT)), replicas


def config(front: socket.socket, replicas: list[Replica]) -> str:
    """The page's, for these servers, and for a front that listens already.

    A replica that is slow to answer a health check is not lost: the machine may be busy.
    """
    text = (ROOT / "docs" / "replicas.md").read_text()
    found = re.search(r"```haproxy\n(.*?)```", text, re.DOTALL)
    assert found
    changes = {
        "bind 127.0.0.1:8000": f"bind fd@{front.fileno()}",
        "timeout check 10s": f"timeout check {TIMEOUT}s",
        "127.0.0.1:8081": f"127.0.0.1:{replicas[0].server_port}",
        "127.0.0.1:8082": f"127.0.0.1:{replicas[1].server_port}",
    }
    changed = found[1]
    for old, new in changes.items():
        assert changed.count(old) == 1, old
        changed = changed.replace(old, new)
    return changed


def talk(question: str, *turns: str, system: str = "Be brief.") -> dict[str, Any]:
    """A conversation's request, with as many turns as there were."""
    said = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    for answer in turns:
        said += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    return {"model": "any", "messages": said, "stream": False}


def who(client: httpx.Client, body: dict[str, Any], **headers: str) -> str:
    found = client.post("/v1/chat/completions", json=body, headers=headers)
    assert found.status_code == 200
    return found.text


def test_conversations_come_back_to_who_knows_them(tmp_path: Path) -> None:
    with balanced(tmp_path) as (client, replicas):
        questions = [f"What is {i}?" for i in range(24)]
        first = {q: who(client, talk(q)) for q in questions}
        assert set(first.values()) == {"a", "b"}
        for q in questions:
            assert who(client, talk(q, "A number.", "Odd.")) == first[q]
        texts = {i: who(client, {"prompt": f"{i} " * 300 + "end"}) for i in range(24)}
        assert set(texts.values()) == {"a", "b"}
        for i, name in texts.items():
            assert who(client, {"prompt": f"{i} " * 300 + "another end"}) == name
        named = {who(client, talk(q), **{"X-Conversation": "one"}) for q in questions}
        assert len(named) == 1
        replicas[0].is_well = False
        assert {who(client, talk(q)) for q in questions} == {"b"}
        assert all(who(client, talk(q)) == "b" for q in questions if first[q] == "b")
