"""Streams that outlive a lost connection, so that clients can resume them (server-stream.cpp). A
request has one if it names a conversation: `X-Conversation-Id`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llama_py_server.wire.clients import cancel_task, holder, wait_until_gone
from llama_py_server.wire.errors import invalid

T = TypeVar("T")
HEADER = "x-conversation-id"
SECONDS = 300.0  # seconds until an ended reply, or a running one without a reader, is dropped
MOST = 4 << 20  # the last bytes of a reply that are saved
TOGETHER = 64 << 20  # bytes of all saved replies
_MODEL = re.compile("(?=::)")  # position before a model in a conversation's name
LONGEST = 1024  # characters of a conversation's name


class SavedStream:
    """The bytes of one reply.

    holder          number of the API key
    started, ended  wall-clock times for clients; the clock may be adjusted
    read, over      time of the last read, and of the end, on a monotonic clock
    """

    def __init__(self, id: str, holder: int = 0) -> None:
        self.id, self.holder = id, holder
        self.started, self.ended = time.time(), 0.0
        self.data, self.dropped = bytearray(), 0
        self.runs = self.done = self.cancelled = False
        self.n_readers, self.read, self.over = 0, time.monotonic(), 0.0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes that it ever had."""
        return self.dropped + len(self.data)

    def run(self, chunks: AsyncIterator[bytes], at_end: Callable[[], None]) -> None:
        """Save all chunks, with or without a reader."""
        self.runs = True
        if self.cancelled:
            at_end()
            return
        self._task = asyncio.ensure_future(self._take(chunks))
        self._task.add_done_callback(lambda _: at_end())  # also before its start

    async def _take(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in chunks:
                self.data += chunk
                self.shorten(len(self.data) - MOST)
                self._tell()
        finally:
            self.finish()

    def shorten(self, n: int) -> None:
        """Drop the first n bytes, if n > 0."""
        if n > 0:
            n = min(n, len(self.data))
            del self.data[:n]
            self.dropped += n

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def finish(self) -> None:
        if not self.done:
            self.done, self.ended, self.over = True, time.time(), time.monotonic()
            self._tell()

    def stop(self) -> None:
        """Cancel the stream and its task."""
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()
        self.finish()

    async def unless_stopped(self, doing: Awaitable[T]) -> T:
        """Await a result; HTTPError if the stream is stopped before."""
        task = asyncio.ensure_future(doing)
        try:
            while not task.done() and not self.cancelled:
                waiting = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if not task.done():
                raise invalid("the request was canceled before the response started")
            return task.result()
        finally:
            await cancel_task(task)

    async def read_bytes(self, at: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes from `at` on, then new bytes. Ends early for a reader so slow that its
        next bytes have been dropped."""
        self.n_readers += 1
        try:
            while at >= self.dropped:
                if at < self.size:
                    found = bytes(self.data[at - self.dropped :])
                    at += len(found)
                    yield found
                elif self.done:
                    return
                else:
                    await self._changed.wait()
        finally:
            self.n_readers, self.read = self.n_readers - 1, time.monotonic()

    @property
    def is_over(self) -> bool:
        """True if it can be dropped: after a long time since its end, or without a reader."""
        if self.done:
            return time.monotonic() - self.over > SECONDS
        return self.runs and not self.n_readers and time.monotonic() - self.read > SECONDS


class Replay(Response):
    """A saved stream from one byte on. The end of the client is not its end."""

    media_type = "text/event-stream"

    def __init__(self, saved: SavedStream, at: int = 0) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self.saved, self.at = saved, at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with suppress(OSError):
                    sending.result()
        finally:
            await cancel_task(gone)
            await cancel_task(sending)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        chunks = self.saved.read_bytes(self.at)
        try:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            await chunks.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class SavedStreams:
    """Last stream of each conversation, separate for each API key."""

    def __init__(self) -> None:
        self._saved: dict[tuple[int, str], SavedStream] = {}

    def begin(self, id: str, holder: int = 0) -> SavedStream:
        """Create a stream; the conversation's previous one is stopped."""
        self.stop(id, holder)
        self.sweep()
        self._saved[holder, id] = saved = SavedStream(id, holder)
        return saved

    def get(self, id: str, holder: int = 0) -> SavedStream | None:
        return self._saved.get((holder, id))

    def drop(self, saved: SavedStream) -> None:
        """Drop a stream if its request failed before the first data."""
        if self.get(saved.id, saved.holder) is saved:
            del self._saved[saved.holder, saved.id]
        saved.finish()

    def stop(self, id: str, holder: int = 0) -> None:
        saved = self._saved.pop((holder, id), None)
        if saved is not None:
            saved.stop()

    def sweep(self) -> None:
        """Drop streams that are over, then excess data: ended streams, the oldest first, then the
        beginnings of the longest active streams."""
        for saved in [k for k in self._saved.values() if k.is_over]:
            self.stop(saved.id, saved.holder)
        excess = sum(len(k.data) for k in self._saved.values()) - TOGETHER
        if excess <= 0:
            return
        for saved in sorted((k for k in self._saved.values() if k.done), key=lambda k: k.over):
            if excess <= 0:
                return
            excess -= len(saved.data)
            self.stop(saved.id, saved.holder)
        while excess > 0:
            longest = max(self._saved.values(), key=lambda k: len(k.data))
            n = min(excess, (len(longest.data) + 1) // 2)
            longest.shorten(n)
            excess -= n

    def lookup(self, ids: list[str], holder: int = 0) -> list[dict[str, Any]]:
        """Return the streams of conversations that the client names, and of a model's:
        `ID::MODEL`."""
        known: dict[str, list[SavedStream]] = {}
        for saved in (k for k in self._saved.values() if k.holder == holder):
            for end in (*(m.start() for m in _MODEL.finditer(saved.id)), len(saved.id)):
                known.setdefault(saved.id[:end], []).append(saved)
        found = [k for id in dict.fromkeys(ids) for k in known.get(id, ())]
        return [
            {
                "conversation_id": k.id,
                "is_done": k.done,
                "total_bytes": k.size,
                "started_at": int(k.started),
                "completed_at": int(k.ended),
            }
            for k in found
        ]


def saved_stream(request: Request) -> SavedStream | None:
    """Return the stream of a request, if it names a conversation."""
    found: SavedStream | None = getattr(request.state, "saved", None)
    return found


def begin_stream(request: Request, streams: SavedStreams) -> SavedStream | None:
    id = request.headers.get(HEADER, "")
    if not id:
        return None
    if len(id) > LONGEST:
        raise invalid(f"X-Conversation-Id must have at most {LONGEST} characters")
    request.state.saved = saved = streams.begin(id, holder(request))
    return saved
