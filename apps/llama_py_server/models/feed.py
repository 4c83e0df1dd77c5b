"""Server-sent events of GET /models/sse: models that appear and disappear, and download progress
(server-models.cpp:notify_sse)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from llama_py_server.wire.sse import PING, Frame, encode

Statuses = Callable[[], Mapping[str, str]]

LOOK = 0.1  # seconds between two checks of models, while clients listen
QUIET = 15.0  # seconds between keep-alive comments
MOST = 4096  # queued events per listener; a slower listener is dropped


class Feed:
    """Events for all listeners.

    statuses  returns the current status of each model by name
    """

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses
        self._listening: set[asyncio.Queue[bytes]] = set()
        self._watching: asyncio.Task[None] | None = None

    def send(self, event: str, model: str, data: object = None) -> None:
        """Send an event to all listeners."""
        more = {} if data is None else {"data": data}
        text = encode(Frame({"model": model, "event": event, **more}))
        for queue in [*self._listening]:
            if queue.qsize() < MOST:
                queue.put_nowait(text)
            else:
                self._end(queue)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield all events from now on, until the feed is closed."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._listening.add(queue)
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        try:
            yield PING  # confirms the subscription
            while queue in self._listening or not queue.empty():
                text = PING
                with suppress(asyncio.TimeoutError):
                    text = await asyncio.wait_for(queue.get(), QUIET)
                yield text
        finally:
            self._end(queue)

    def _end(self, queue: asyncio.Queue[bytes]) -> None:
        self._listening.discard(queue)
        if not self._listening and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def close(self) -> None:
        """Close the feed; all streams end."""
        for queue in [*self._listening]:
            queue.put_nowait(b"")
            self._end(queue)

    async def _watch(self) -> None:
        """Send an event for each change."""
        before = self._statuses()
        while True:
            await asyncio.sleep(LOOK)
            now = self._statuses()
            for name, status in now.items():
                if before.get(name, status) != status:
                    self.send("model_status", name, {"status": status})
            before = now
