"""Limits on idle, slow and excess connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from llama_py_server.wire.pace import Pace
from llama_py_server.wire.work import ANSWERS

log = logging.getLogger("llama_py")

RESERVED = 64  # descriptors for files, pipes and sockets of this process, and for MORE
MORE = 16  # connections beyond the limit, so that /health and clients with a key are answered
QUIET = 60.0  # seconds between two lines about descriptors


def limit_connections(most: int) -> int:
    """Return how many connections may be open: `most`, or fewer if descriptors are scarce."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    return max(min(most, soft - RESERVED), 1)


class Connection(H11Protocol):
    """A connection that must send a request in time, and may be closed while it is idle.

    While responses are generated, a client that sends many requests waits before each (`Pace`).
    Beyond the limit, it closes the longest idle connection of the address with the most
    connections. So a client that opens many connections loses its own.
    """

    most = 0  # connections at once
    pace = Pace()
    _head: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.pace.open(self.address)
        if (delay := self._delay()) > 0:
            self.loop.call_soon(transport.pause_reading)  # asyncio starts to read after this call
            self.loop.call_later(delay, self._resume)
        self._begin_idle()
        if len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.pace.close(self.address)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._begin_idle()  # must precede the start of a received request
        if not self.transport.is_closing() and (delay := self._delay()) > 0:
            self.loop.call_later(delay, super().on_response_complete)
        else:
            super().on_response_complete()

    def _delay(self) -> float:
        delay = self.pace.delay(self.address, self.loop.time())
        return delay if ANSWERS else 0.0

    def _resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def is_busy(self) -> bool:
        """True if a request is being read or answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def end(self) -> None:
        """Close the connection unless it has a request."""
        if not self.is_busy and not self.transport.is_closing():
            self.transport.abort()

    def _begin_idle(self) -> None:
        self._stop_timer()
        self._idle_since = self.loop.time()
        self._head = self.loop.call_later(self.timeout_keep_alive, self.end)

    def _stop_timer(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _make_room(self) -> None:
        known = [c for c in self.connections if isinstance(c, Connection)]
        counts = Counter(c.address for c in known)
        idle = [c for c in known if c is not self and not c.is_busy]
        if idle:
            max(idle, key=lambda c: (counts[c.address], -c._idle_since)).end()
        elif len(known) > self.most + MORE:
            self.end()

    @property
    def address(self) -> str:
        """The client's address; "" of a unix socket."""
        return self.client[0] if self.client else ""


class LoopErrors:
    """Logs errors of the event loop, at most one per minute about scarce descriptors or memory."""

    def __init__(self) -> None:
        self._told = -QUIET

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, MemoryError):
            self._tell("connections are closed: too little memory to read their requests")
        elif str(context.get("message", "")).startswith("socket.accept()"):
            self._tell(f"no connection can be accepted: {error}")
        else:
            loop.default_exception_handler(context)

    def _tell(self, why: str) -> None:
        if time.monotonic() - self._told >= QUIET:
            self._told = time.monotonic()
            log.error(why)
