"""Limits of requests: their number, their body sizes, and their minimum speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.memory import Trimmer
from llama_py_server.wire.responses import as_error
from llama_py_server.wire.usage import CLIENT, Client
from llama_py_server.wire.work import ANSWERS

SMALL = 1 << 20  # maximum bytes of a body that is not a prompt
NO_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})  # methods whose body is ignored
IGNORED = 1 << 16  # maximum bytes of an ignored body
PAUSE = 0.002  # seconds between parts of a large body, while responses are generated


class RequestLimit:
    """Refuses requests beyond a number at once, but for public paths and clients with a key."""

    def __init__(self, app: ASGIApp, most: int, public: Collection[str]) -> None:
        self.app, self.most, self.public = app, most, frozenset(public)
        self.n = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.public:
            await self.app(scope, receive, send)
            return
        if self.n >= self.most and "holder" not in scope.get("state", {}):
            why = (
                f"the server has {self.n} open requests, its maximum; try again later, or raise "
                "--max-connections"
            )
            refusal = as_error(HTTPError("unavailable_error", why), scope["path"])
            await refusal(scope, receive, send)
            return
        self.n += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.n -= 1


class BodyLimit:
    """Refuses bodies that are too large or too slow, or exceed the total size.

    Attributes:
        limits: Returns two numbers of bytes, which change with the loaded model. The first is for
            a body of `large` paths, which take prompts; other paths take 1 MiB. The second is for
            all bodies of unanswered requests; beyond it a client may have its share, by the number
            of clients.
        seconds: Time limit for receiving a body.
        uploads: Beginning of the paths of files, which are of any size and not held in memory; the
            time limit is for each part.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Callable[[], tuple[int, int]],
        seconds: float,
        large: Collection[str],
        uploads: str = "/api/blobs/",
    ) -> None:
        self.app, self.limits, self.seconds, self.uploads = app, limits, seconds, uploads
        self.large = frozenset(large)
        self._unknown, self._trimmer = Client(""), Trimmer()
        self.n_bytes = self.n_clients = 0  # of all current bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "POST" and scope["path"].startswith(self.uploads):
            await self.app(scope, self._limit_pauses(receive), send)
            return
        most, together = self.limits()
        most = self._max_bytes(scope, most)
        said = Headers(scope=scope).get("content-length", "")
        size = int(said) if said.isdecimal() and len(said) < 20 else 0
        if size > most or len(said) >= 20:
            await as_error(_too_large(most), scope["path"])(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        client = CLIENT.get() or self._unknown
        until, n, whole = loop.time() + self.seconds, 0, False

        async def receive_limited() -> Message:
            nonlocal n, whole
            if whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(until - loop.time(), 0))
            except asyncio.TimeoutError:
                why = f"the request was not complete after {self.seconds} seconds (--timeout-read)"
                raise HTTPError("request_too_large", why) from None
            came = len(message.get("body", b""))
            n += came
            self._count(client, came)
            if n > SMALL and ANSWERS:  # reading blocks all streams
                await asyncio.sleep(PAUSE)
            whole = not message.get("more_body", False)
            if n > most:
                raise _too_large(most)
            if self.n_bytes > together < client.n_bytes * self.n_clients:
                why = f"all requests have more than {together} bytes; try again later"
                raise HTTPError("unavailable_error", f"{why} (--max-bodies allows more)")
            return message

        try:
            await self.app(scope, receive_limited, send)
        finally:
            self._count(client, -n)
            if n > SMALL:
                self._trimmer.trim_soon()

    def _limit_pauses(self, receive: Receive) -> Receive:
        async def receive_part() -> Message:
            try:
                return await asyncio.wait_for(receive(), self.seconds)
            except asyncio.TimeoutError:
                why = f"no part of the file arrived for {self.seconds} seconds (--timeout-read)"
                raise HTTPError("request_too_large", why) from None

        return receive_part

    def _count(self, client: Client, n: int) -> None:
        before = client.n_bytes
        client.n_bytes += n
        self.n_bytes += n
        self.n_clients += (client.n_bytes > 0) - (before > 0)

    def _max_bytes(self, scope: Scope, most: int) -> int:
        if scope["method"] in NO_BODY:
            return IGNORED
        return most if scope["path"] in self.large else min(SMALL, most)


def _too_large(most: int) -> HTTPError:
    why = f"the request has more than {most} bytes; raise --max-body for endpoints with prompts"
    return HTTPError("request_too_large", why)
