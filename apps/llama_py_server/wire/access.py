"""Who is let in: keys, and pages of other origins (server-http.cpp)."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.responses import as_error, as_written

if TYPE_CHECKING:
    from llama_py_server.params import ListenParams

_HERE = ("localhost", "127.0.0.1", "::1")


class KeyCheck:
    """A client needs one of the keys, if there are any, but for public paths. How long a comparison
    takes does not tell how much of a key was right."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], public: Sequence[str]) -> None:
        self.app, self.public = app, frozenset(public)
        self.keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.keys and scope["path"] not in self.public:
            given = given_key(Headers(scope=scope)).encode("latin-1", "replace")
            # every key is compared, so that the time does not tell which one
            same = [hmac.compare_digest(given, key) for key in self.keys]
            if not any(same):
                refusal = as_error(HTTPError("authentication_error", "Invalid API Key"))
                await refusal(scope, receive, send)
                return
            scope.setdefault("state", {})["holder"] = same.index(True)
        await self.app(scope, receive, send)


def given_key(headers: Headers) -> str:
    """As OpenAI's clients send it, or Anthropic's."""
    given = headers.get("authorization") or headers.get("x-api-key") or ""
    return given.removeprefix("Bearer ")


class Cors:
    """Which pages may read answers; questions of browsers before a request are answered here."""

    def __init__(self, app: ASGIApp, listen: ListenParams) -> None:
        self.app, self.listen = app, listen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        allowed = self._allowed(Headers(scope=scope).get("origin", ""))

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = {"Server": "llama-py"}
                if allowed:
                    more |= {"Access-Control-Allow-Origin": allowed, "Vary": "Origin"}
                message["headers"] = [*message["headers"], *as_written(more)]
            await send(message)

        if scope["method"] == "OPTIONS":
            await self._answer()(scope, receive, with_headers)
        else:
            await self.app(scope, receive, with_headers)

    def _allowed(self, origin: str) -> str:
        """What the header is; none where it is empty."""
        p = self.listen
        if p.cors_origins == "*" and p.cors_credentials:
            return origin  # with credentials a browser takes no *
        if p.cors_origins == "localhost":
            return origin if is_local(origin) else ""
        return p.cors_origins

    def _answer(self) -> Response:
        p = self.listen
        found = Response(b"", media_type="text/html")
        found.raw_headers += as_written(
            {
                "Access-Control-Allow-Credentials": "true" if p.cors_credentials else "false",
                "Access-Control-Allow-Methods": p.cors_methods,
                "Access-Control-Allow-Headers": p.cors_headers,
            }
        )
        return found


def is_local(origin: str) -> bool:
    """Whether a page is of this machine."""
    try:
        return urlsplit(origin).hostname in _HERE
    except ValueError:
        return False
