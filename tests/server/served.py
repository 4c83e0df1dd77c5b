"""Servers of the demo model in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
import lzma
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from starlette.types import ASGIApp

from llama_py_server.app import app
from llama_py_server.command import build_model_pool, parser
from llama_py_server.models.model_pool import ModelEntry, ModelPool
from llama_py_server.models.state import ModelState
from llama_py_server.params import ListenParams
from llama_py_server.routes.tools import open_toolbox
from llama_py_tools.command.options import read
from llama_py_tools.mcp.params import McpParams
from tests.support.limits import SECONDS

WAIT = SECONDS
LOCAL = "http://localhost"  # where a client of Starlette thinks the server is
TEMPLATES = Path(__file__).parents[1] / "data" / "chat" / "templates.json.xz"
SMALL = ("-c", "2048", "-np", "2", "--temp", "0", "-n", "12", "--no-warmup")
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a place",
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["here", "there"]}},
            "required": ["place"],
        },
    },
}
ASK = [{"role": "user", "content": "Who are you?"}]


async def leave(made: ASGIApp, path: str, body: bytes, begun: Callable[[list[Any]], bool]) -> Any:
    """Post a body, and leave once `begun` is true of the messages so far. -> the messages"""
    sent = list[Any]()
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (message := next(received, None)) is not None:
            return message
        while not begun(sent):
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [],
        "query_string": b"",
        "root_path": "",
    }
    await asyncio.wait_for(made(scope, receive, send), WAIT)
    return sent


@cache
def template(name: str) -> str:
    """One of llama.cpp's collection."""
    found: dict[str, Any] = json.loads(lzma.decompress(TEMPLATES.read_bytes()))
    return str(found["templates"][name]["source"])


def talking() -> tuple[str, str]:
    """The flags for a template with tools, which must begin an answer where they are required."""
    return "--chat-template", template("openai-gpt-oss-120b")


@contextmanager
def served(*flags: str) -> Iterator[tuple[TestClient, ModelState]]:
    """A client of a server with these flags, and what it serves."""
    args = parser().parse_args([*SMALL, *flags])
    pool = build_model_pool(args)
    with pool.models.use("") as loaded:
        state = loaded.state
    pool.ready = True
    toolbox = open_toolbox(read(args, McpParams))
    try:
        made = app(pool, read(args, ListenParams), toolbox=toolbox)
        yield TestClient(made, base_url=LOCAL, raise_server_exceptions=False), state
    finally:
        toolbox.close()
        pool.close()


def until(holds: Callable[[], Any]) -> Any:
    """What is true in the end."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def events(text: str) -> list[tuple[str, Any]]:
    """Name and data of each event of a stream; the end is `[DONE]` as it stands."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in lines:
            data = lines["data"]
            found.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found


def holding(state: ModelState) -> ModelPool:
    """Return a pool of one model that is loaded already."""
    pool = ModelPool([ModelEntry("", lambda _: state, embeds=state.params.embedding)])
    with pool.models.use(""):
        pool.ready = True
    return pool
