"""Usage per client: limits of requests and tokens, and a log line per request."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llama_py.gguf.metadata import printable
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.responses import as_error, as_written

if TYPE_CHECKING:
    from llama_py_server.params import ListenParams

log = logging.getLogger("llama_py")

MINUTE = 60.0
MAX_CLIENTS = 10_000  # tracked at a time


@dataclass(slots=True)
class Client:
    """Usage of one client.

    Attributes:
        name: `key N` by the key's place in the options, else the client's address.
        n_running: Requests that are being answered.
        n_requests: Number of all requests.
        n_tokens: Tokens of all prompts and responses.
        n_bytes: Bytes of the bodies of its unanswered requests.
        requests: Times of the last minute's requests, the oldest first.
        tokens: Times and numbers of the last minute's tokens.
    """

    name: str
    n_running: int = 0
    n_requests: int = 0
    n_tokens: int = 0
    n_bytes: int = 0
    requests: deque[float] = field(default_factory=deque)
    tokens: deque[tuple[float, int]] = field(default_factory=deque)

    def count(self, n: int) -> None:
        """Add tokens of a prompt or an answer."""
        self.n_tokens += n
        self.tokens.append((time.monotonic(), n))

    def forget(self, now: float) -> None:
        """Remove entries older than a minute."""
        while self.requests and self.requests[0] <= now - MINUTE:
            self.requests.popleft()
        while self.tokens and self.tokens[0][0] <= now - MINUTE:
            self.tokens.popleft()

    @property
    def is_idle(self) -> bool:
        """True if no usage of the client counts for a limit."""
        return not (self.n_running or self.requests or self.tokens)


# Client of the request in the current context.
CLIENT: ContextVar[Client | None] = ContextVar("client", default=None)


class UsageLimit:
    """Refuses requests of a client that asks for more than its share, and logs each request.

    A client is an API key; if no keys are set, an address.
    """

    def __init__(self, app: ASGIApp, listen: ListenParams, clients: dict[str, Client]) -> None:
        self.app, self.listen, self.clients = app, listen, clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        now, status = time.monotonic(), 0
        client = self._client(scope, now)

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        before = client.n_tokens
        refused = self._refusal(client, now)
        if refused is None:  # otherwise repeated requests would extend the refusal
            client.requests.append(now)
        client.n_requests += 1
        client.n_running += 1
        token = CLIENT.set(client)
        try:
            if refused is None:
                await self.app(scope, receive, note_status)
            else:
                error, seconds = refused
                response = as_error(error, scope["path"])
                response.raw_headers += as_written({"Retry-After": str(math.ceil(seconds))})
                await response(scope, receive, note_status)
        finally:
            CLIENT.reset(token)
            client.n_running -= 1
            log.info(
                "%s: %s %s %d, %.2f s, %d tokens",
                client.name,
                scope["method"],
                printable(scope["path"]),
                status,
                time.monotonic() - now,
                client.n_tokens - before,
            )

    def _client(self, scope: Scope, now: float) -> Client:
        number = scope.get("state", {}).get("holder")
        address = (scope.get("client") or ("unix socket",))[0]
        name = address if number is None else f"key {number}"
        if name not in self.clients:
            if len(self.clients) >= MAX_CLIENTS:
                self._forget(now)
            self.clients[name] = Client(name)
        client = self.clients[name]
        client.forget(now)
        return client

    def _forget(self, now: float) -> None:
        """Remove idle clients."""
        for client in [*self.clients.values()]:
            client.forget(now)
            if client.is_idle:
                del self.clients[client.name]

    def _refusal(self, client: Client, now: float) -> tuple[HTTPError, float] | None:
        """Return the reason for refusing a request, and the seconds until it may be repeated."""
        p = self.listen
        n_tokens = sum(n for _, n in client.tokens)
        why, seconds = "", 1.0
        if 0 < p.client_parallel <= client.n_running:
            why = f"{client.n_running} requests in parallel (--client-parallel)"
        elif 0 < p.client_requests <= len(client.requests):
            why = f"{len(client.requests)} requests per minute (--client-requests)"
            seconds = client.requests[-p.client_requests] + MINUTE - now
        elif 0 < p.client_tokens <= n_tokens:
            why = f"{n_tokens} tokens per minute (--client-tokens)"
            seconds = client.tokens[0][0] + MINUTE - now
        if not why:
            return None
        message = f"this client is at its limit of {why}; try again in {math.ceil(seconds)} seconds"
        return HTTPError("rate_limit_error", message), seconds
