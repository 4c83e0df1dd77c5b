"""Conversion of engine requests to the HTTP response, whole or as a stream
(server-context.cpp:handle_completions_impl)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llama_py_server.schema.completion import N_PROBS
from llama_py_server.stream.replay import Replay, saved_stream
from llama_py_server.stream.replies import PendingReplies
from llama_py_server.stream.writers import Frame, ReplyWriter
from llama_py_server.wire.clients import cancel_task, unless_gone, wait_until_gone
from llama_py_server.wire.errors import as_http_error
from llama_py_server.wire.responses import GONE, as_json, as_long_json
from llama_py_server.wire.sse import dumps, dumps_by_steps
from llama_py_server.wire.work import Work, run

if TYPE_CHECKING:
    from llama_py.serving import Request
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.completion import Delivery
    from llama_py_server.stream.reply import Change, Reply

MANY, LONG = 16, 1 << 14  # replies, and tokens, that are written in another thread
AT_ONCE = 1 << 16  # maximum bytes of pending events sent together
WARNING = "x-schema-warning"  # header with a line about assertions that no grammar enforces
MAX_WARNINGS, MAX_WARNING = 8, 300  # warnings in that header, and characters of each


async def respond(
    http: HTTPRequest,
    state: ModelState,
    requests: Sequence[Request],
    delivery: Delivery,
    writer: ReplyWriter,
) -> Response:
    """Return the replies to prompts; cancel them if the client disconnects before the end."""
    pending = PendingReplies(state, requests, delivery)
    found = await _respond(http, pending, writer)
    warnings = pending.replies[0].warnings
    if warnings and found is not GONE:
        found.headers[WARNING] = _shorten_warnings(warnings)
    return found


def _shorten_warnings(warnings: Sequence[str]) -> str:
    """Return warnings as the value of a header."""
    texts = [text[:MAX_WARNING] for text in warnings[:MAX_WARNINGS]]
    texts += [f"{len(warnings) - MAX_WARNINGS} more"] if len(warnings) > MAX_WARNINGS else []
    return "; ".join(texts).encode("ascii", "backslashreplace").decode()


async def _respond(http: HTTPRequest, pending: PendingReplies, writer: ReplyWriter) -> Response:
    if not pending.delivery.stream:
        return await unless_gone(http, _write_body(pending, writer)) or GONE
    saved = saved_stream(http)
    if saved is not None:
        first = await saved.unless_stopped(_wait_first_change(pending))
        lease = http.state.lease
        lease.keep()

        def end() -> None:
            pending.cancel()
            lease.end()

        saved.run(Stream(pending, writer, first).chunks(), end)
        return Replay(saved)
    begun = await unless_gone(http, _wait_first_change(pending))
    return Stream(pending, writer, begun) if begun is not None else GONE


async def _write_body(pending: PendingReplies, writer: ReplyWriter) -> Response:
    async with pending:
        async for _ in pending:
            pass
        if not _are_large(pending.replies):
            return as_json(writer.write_body(pending.replies))
        return await run(Work.WRITE, lambda: as_long_json(writer.write_body(pending.replies)))


async def _wait_first_change(pending: PendingReplies) -> Change:
    """Return the first change of a stream; an earlier error becomes a separate response, as in
    OpenAI's API."""
    await pending.__aenter__()
    try:
        first = await pending.next()
        assert first is not None
        return first
    except BaseException:
        pending.cancel()
        raise


def _are_large(replies: Sequence[Reply]) -> bool:
    """Return True if it takes long to write replies as a whole."""
    n_items = sum(reply.n_prompt + reply.n_generated + _n_biases(reply) for reply in replies)
    has_probabilities = any(reply.request.params.logprobs is not None for reply in replies)
    return has_probabilities or len(replies) > MANY or n_items > LONG


def _n_biases(reply: Reply) -> int:
    """Return the number of biases, which the settings in a response repeat."""
    return len(reply.request.params.logit_bias)


def _is_large(change: Change) -> bool:
    """Return True if an event has many probabilities, or the text of a long prompt."""
    request = change.reply.request
    is_long = change.reply.has_ended and change.reply.n_prompt + _n_biases(change.reply) > LONG
    return (
        is_long or (request.params.logprobs or 0) > N_PROBS or request.prompt_logprobs is not None
    )


class Stream(Response):
    """A stream of events. The end of the client is the end of the work."""

    def __init__(self, pending: PendingReplies, writer: ReplyWriter, first: Change) -> None:
        form = self.form = writer.form
        super().__init__(headers={"cache-control": "no-cache"}, media_type=form.media_type)
        del self.headers["content-length"]
        self.pending, self.writer, self.first = pending, writer, first
        self.ping = max(pending.delivery.sse_ping_interval, 0) if form.ping else 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                with suppress(OSError):  # the client has disconnected
                    sending.result()
        finally:
            self.pending.cancel()
            await cancel_task(gone)
            await cancel_task(sending)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for chunk in self.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def chunks(self) -> AsyncIterator[bytes]:
        change: Change | None = self.first
        try:
            while change is not None:
                if _is_large(change):
                    chunk = await run(Work.WRITE, self._write_change, change, dumps_by_steps)
                else:
                    chunk = self._write_change(change)
                    while len(chunk) < AT_ONCE and (change := self.pending.soon()) is not None:
                        chunk += self._write_change(change)
                if chunk:
                    yield chunk
                while await self.pending.is_quiet(self.ping):
                    yield self.form.ping
                change = await self.pending.next()
            if self.writer.end:
                yield self.writer.end
        except Exception as e:
            yield self.form.encode(self.writer.error(as_http_error(e)), dumps)

    def _write_change(self, change: Change, dumps: Callable[[Any], bytes] = dumps) -> bytes:
        return b"".join(self.form.encode(frame, dumps) for frame in self._frames(change))

    def _frames(self, change: Change) -> list[Frame]:
        reply = change.reply
        if change.is_progress:
            return self.writer.progress(reply) if reply.delivery.return_progress else []
        found = self.writer.partial(reply, change) if change.is_shown else []
        return [*found, *self.writer.final(reply)] if reply.has_ended else found
