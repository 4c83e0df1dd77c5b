"""From prompts and a task to the HTTP response, whole or as a stream
(server-context.cpp:handle_completions_impl)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llama_py_server.stream.replay import Replay, kept_of
from llama_py_server.stream.replies import News, Work
from llama_py_server.stream.writers import Event, Writer
from llama_py_server.wire.clients import left, stopped, unless_gone
from llama_py_server.wire.errors import told
from llama_py_server.wire.responses import GONE, as_json
from llama_py_server.wire.sse import PING, written

if TYPE_CHECKING:
    from llama_py_server.models.state import State
    from llama_py_server.schema.completion import Task

AT_ONCE = 1 << 16  # bytes of events that came meanwhile are sent together
WARNING = "x-schema-warning"  # header with a line about assertions that no grammar enforces
MAX_WARNINGS, MAX_WARNING = 8, 300  # in that header, and characters of one


async def answered(
    request: Request, state: State, prompts: Sequence[Sequence[int]], task: Task, writer: Writer
) -> Response:
    """The answers to prompts. Where the client leaves before the end, they are cancelled."""
    found = await _answered(request, Work(state, prompts, task), writer)
    if task.warnings and found is not GONE:
        found.headers[WARNING] = _shortened(task.warnings)
    return found


def _shortened(warnings: Sequence[str]) -> str:
    """Return warnings as the value of a header."""
    texts = [text[:MAX_WARNING] for text in warnings[:MAX_WARNINGS]]
    texts += [f"{len(warnings) - MAX_WARNINGS} more"] if len(warnings) > MAX_WARNINGS else []
    return "; ".join(texts).encode("ascii", "backslashreplace").decode()


async def _answered(request: Request, work: Work, writer: Writer) -> Response:
    if not work.answers[0].task.stream:
        return await unless_gone(request, _whole(work, writer)) or GONE
    kept = kept_of(request)
    if kept is not None:
        first = await kept.unless_stopped(_begun(work))
        lease = request.state.lease
        lease.keep()

        def end() -> None:
            work.cancel()
            lease.end()

        kept.run(Stream(work, writer, first).chunks(), end)
        return Replay(kept)
    begun = await unless_gone(request, _begun(work))
    return Stream(work, writer, begun) if begun is not None else GONE


async def _whole(work: Work, writer: Writer) -> Response:
    async with work:
        async for _ in work:
            pass
        return as_json(writer.whole(work.answers))


async def _begun(work: Work) -> News:
    """The first that is heard of a stream: an error before is a response of its own, as OpenAI has
    it. The work goes on."""
    await work.__aenter__()
    try:
        first = await work.next()
        assert first is not None
        return first
    except BaseException:
        work.cancel()
        raise


class Stream(Response):
    """A stream of events. The end of the client is the end of the work."""

    media_type = "text/event-stream"

    def __init__(self, work: Work, writer: Writer, first: News) -> None:
        super().__init__(headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self.work, self.writer, self.first = work, writer, first
        self.ping = max(work.answers[0].task.sse_ping_interval, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with suppress(OSError):  # the client has left
                    sending.result()
        finally:
            self.work.cancel()
            await stopped(gone)
            await stopped(sending)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for chunk in self.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def chunks(self) -> AsyncIterator[bytes]:
        news: News | None = self.first
        try:
            while news is not None:
                chunk = self._written(news)
                while len(chunk) < AT_ONCE and (news := self.work.soon()) is not None:
                    chunk += self._written(news)
                if chunk:
                    yield chunk
                while await self.work.is_quiet(self.ping):
                    yield PING
                news = await self.work.next()
            if self.writer.end:
                yield self.writer.end
        except Exception as e:
            yield written(self.writer.error(told(e)))

    def _written(self, news: News) -> bytes:
        return b"".join(map(written, self._events(news)))

    def _events(self, news: News) -> list[Event]:
        answer, change = news
        if change is None:
            return self.writer.progress(answer) if answer.task.return_progress else []
        found = self.writer.partial(answer, change) if _shows(news) else []
        return [*found, *self.writer.final(answer)] if answer.ended else found


def _shows(news: News) -> bool:
    change = news.change
    return change is not None and bool(
        change.first
        or change.text
        or change.deltas
        or change.chosen
        or (change.tokens and news.answer.task.return_tokens)
    )
