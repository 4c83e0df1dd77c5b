"""Replies of one HTTP request in progress: events are passed from the engine's thread to this
one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from llama_py.serving import Busy, Event, Handle, Timings
from llama_py.serving.common_marks import mark_beginnings
from llama_py_server.schema.completion import with_params
from llama_py_server.stream.reply import Change, Reply
from llama_py_server.wire.errors import HTTPError, as_http_error
from llama_py_server.wire.usage import CLIENT
from llama_py_server.wire.work import ANSWERS, Work, run

if TYPE_CHECKING:
    from llama_py.serving import Engine, Request
    from llama_py_server.models.state import ModelState
    from llama_py_server.schema.completion import Delivery


EACH_SLOT = 2  # submitted replies of one request at a time


_CUT = Event(Timings(), finish_reason="length")  # ends a reply early
_PENDING: WeakSet[PendingReplies] = WeakSet()
_RUNNING: WeakKeyDictionary[Engine, dict[int, Reply]] = WeakKeyDictionary()


def cut_all() -> None:
    """End all replies with their present content, since the server is stopping."""
    for pending in [*_PENDING]:
        pending.cut()


def running(state: ModelState) -> dict[int, Reply]:
    """Return the replies of a model that are on their way, by the engine's numbers."""
    return _RUNNING.setdefault(state.engine, {})


class PendingReplies:
    """All replies of a request; the end of `async with` cancels unfinished replies.

    Events are reported in order; HTTPError if a reply fails. Only a few replies are submitted
    at a time, to leave the queue free for other requests.
    """

    def __init__(self, state: ModelState, requests: Sequence[Request], delivery: Delivery) -> None:
        self.state, self.delivery, self._running = state, delivery, running(state)
        self.replies = [
            Reply(i * delivery.n_cmpl + j, _copy(request, j), delivery)
            for i, request in enumerate(requests)
            for j in range(delivery.n_cmpl)
        ]
        self._todo, self._left = deque(self.replies), len(self.replies)
        self._requests = requests
        self._marks: list[list[int] | None] = []  # of each request, once they are known
        self._asking: asyncio.Future[None] | None = None
        self._handles: dict[int, Handle] = {}  # of replies on their way, by their index
        self._is_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[Reply, Event] | None] = asyncio.Queue()
        self._first: tuple[Reply, Event] | None = None  # event found by `is_quiet`
        self._forget = state.loss.listen(self._note_loss) if state.loss is not None else None
        self._client = CLIENT.get()
        _PENDING.add(self)

    def _note_loss(self, error: HTTPError) -> None:
        """Note that the engine will send no more events."""
        event = Event(Timings(), finish_reason="error", error=error)
        self._events.put_nowait((self.replies[0], event))

    def cut(self) -> None:
        """End the replies now; those without a token fail. The engine is not waited for."""
        self._is_cancelled = True
        for handle in list(self._handles.values()):
            handle.cancel()
        for reply in self.replies:
            self._events.put_nowait((reply, _CUT))

    async def __aenter__(self) -> PendingReplies:
        ANSWERS.add(self)
        try:
            await run(Work.PREPARE, self._submit)
        except BaseException:
            self.cancel()
            raise
        return self

    def _submit(self) -> None:
        """Submit requests, in a thread since preparing one (a grammar) may take long."""
        client = "" if self._client is None else self._client.name
        self._marks = self._marks or mark_beginnings(self._requests)
        try:
            while self._todo and not self._is_cancelled:
                if self._n_running >= EACH_SLOT * self.state.engine.n_slots:
                    return
                reply = self._todo[0]
                if not len(reply.prompt):
                    self._todo.popleft()
                    self._tell(reply, Event(reply.timings, finish_reason="length"))
                    continue
                marks = self._marks[reply.index // self.delivery.n_cmpl] or reply.request.marks
                try:
                    request = replace(reply.request, client=client, marks=marks)
                    handle = self.state.engine.submit(request, partial(self._tell, reply))
                except Busy:
                    if self._n_running:
                        return  # continue after the end of a running reply
                    raise
                self._todo.popleft()
                self._handles[reply.index] = handle
                self._running[handle.id] = reply
                if self._is_cancelled:  # cancelled during the submission: cancel this one as well
                    self.cancel()
        except Exception as e:
            raise as_http_error(e) from e

    @property
    def _n_running(self) -> int:
        return self._left - len(self._todo)

    def _ask_more(self) -> None:
        """Submit the next requests after one has ended."""
        if self._todo and (self._asking is None or self._asking.done()):
            self._asking = asyncio.ensure_future(self._submit_in_thread())

    async def _submit_in_thread(self) -> None:
        """Submit requests in a thread; an error becomes an event of a reply."""
        try:
            n = -1
            while (
                self._todo
                and not self._is_cancelled
                and (
                    len(self._todo) != n or not self._n_running  # their end would call this again
                )
            ):
                n = len(self._todo)
                await run(Work.PREPARE, self._submit)
        except HTTPError as e:
            event = Event(Timings(), finish_reason="error", error=e)
            self._events.put_nowait((self._todo[0], event))

    def _tell(self, reply: Reply, event: Event) -> None:
        """Pass an event to the event loop; called in the engine's thread. Raises if the loop is
        closed."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (reply, event))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel all replies, including queued replies."""
        ANSWERS.discard(self)
        if not self._is_cancelled:
            for reply in self.replies:
                if not reply.has_ended:
                    self._count(reply)
        self._is_cancelled = True
        if self._forget is not None:
            self._forget()
        for index in list(self._handles):
            self._release(index)

    def _release(self, index: int) -> None:
        """Cancel a reply if it has not ended, and release its state: a sampler may be large."""
        handle = self._handles.pop(index, None)
        if handle is not None:
            self._running.pop(handle.id, None)
            handle.cancel()

    async def next(self) -> Change | None:
        """Return the next change; None after the end of all replies."""
        if self._left == 0:
            return None
        await asyncio.sleep(0)  # other tasks run, even if all events are available
        first, self._first = self._first, None
        while first is None or _is_past(*first):
            first = await self._events.get()
        return await self._check_change(*first)

    async def is_quiet(self, seconds: float) -> bool:
        """Wait for the next change; return True after `seconds` without one (0: no limit)."""
        if self._left == 0 or self._first is not None:
            return False
        timer = self._loop.call_later(seconds, self._events.put_nowait, None) if seconds else None
        self._first = await self._events.get()
        if timer is not None:
            timer.cancel()
        return self._first is None

    def soon(self) -> Change | None:
        """Return the next change if it is available and not an error, which is sent later."""
        while self._left and self._first is None and not self._events.empty():
            self._first = self._events.get_nowait()
            if self._first is not None and _is_past(*self._first):
                self._first = None
        if self._left == 0 or self._first is None or self._first[1].error is not None:
            return None
        if self._first[1] is _CUT:
            return None
        if self._is_slow(*self._first):
            return None
        (reply, event), self._first = self._first, None
        return self._note_change(reply.take(event))

    def _is_slow(self, reply: Reply, event: Event) -> bool:
        """Return True for an end that is checked by a schema."""
        return event.finish_reason is not None and reply.is_checked

    async def _check_change(self, reply: Reply, event: Event) -> Change:
        if event is _CUT:
            if not reply.tokens:
                raise HTTPError("unavailable_error", "the server is stopping")
            event = replace(_CUT, timings=reply.timings, slot=reply.slot)
        if event.error is not None:
            raise as_http_error(event.error)
        if self._is_slow(reply, event):
            return self._note_change(await run(Work.PREPARE, reply.take, event))
        return self._note_change(reply.take(event))

    def _note_change(self, change: Change) -> Change:
        if change.reply.has_ended:
            self._left -= 1
            self._release(change.reply.index)
            self._count(change.reply)
            self._ask_more()
        return change

    def _count(self, reply: Reply) -> None:
        """Count the tokens of a reply for its client."""
        if self._client is not None:
            self._client.count(reply.timings.n_prompt + reply.timings.n_gen)

    async def __aiter__(self) -> AsyncIterator[Change]:
        while (change := await self.next()) is not None:
            yield change


def _is_past(reply: Reply, event: Event) -> bool:
    """Return True for an event after the end of its reply."""
    return reply.has_ended and event.error is None


def _copy(request: Request, i: int) -> Request:
    """Return the request of a prompt's i-th reply: each has its own seed."""
    p = request.params
    if i == 0 or not p.has_seed:
        return request
    return replace(with_params(request, seed=(p.seed + i) % (2**32 - 1)), id_slot=-1)
