"""Requests that a handler makes to other handlers of this server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.types import Message

from llama_py_server.wire.sse import dumps_by_steps
from llama_py_server.wire.work import Work, run

Handle = Callable[[Request], Awaitable[Any]]


async def ask(outer: Request, handle: Handle, body: dict[str, Any]) -> Any:
    """Return the JSON of a handler's response to a body, for the client of another request."""
    whole: list[bytes] = []

    async def send(message: Message) -> None:
        whole.append(message.get("body", b""))

    inner = _request(outer, await run(Work.LONG, dumps_by_steps, body))
    await (await handle(inner))(inner.scope, inner.receive, send)
    return await run(Work.PARSE, json.loads, b"".join(whole) or b"null")


def _request(outer: Request, body: bytes) -> Request:
    """Return a request of the same client with another body; the outer one detects that the client
    left."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    headers = [(k, v) for k, v in outer.scope["headers"] if k != b"x-conversation-id"]
    return Request({**outer.scope, "headers": headers, "state": {}}, receive)
