"""Requests that are too large, or too slow in coming."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llama_py_server.wire.body import TooLarge
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.responses import as_error


class BodyLimit:
    """most: bytes of a body;  seconds: in which it must have come"""

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self.app, self.most, self.seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said) > self.most:
            await as_error(HTTPError("request_too_large", self._why))(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        until, n, whole = loop.time() + self.seconds, 0, False

        async def limited() -> Message:
            nonlocal n, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(until - loop.time(), 0))
            except asyncio.TimeoutError:
                raise TooLarge(f"the request did not come in {self.seconds} seconds") from None
            n += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if n > self.most:
                raise TooLarge(self._why)
            return message

        await self.app(scope, limited, send)

    @property
    def _why(self) -> str:
        return f"the request has more than {self.most} bytes; --max-body allows more"
