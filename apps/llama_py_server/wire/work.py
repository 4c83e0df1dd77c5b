"""Blocking work outside the event loop: threads for each kind of work, with limits.

A kind has few threads, so that work of one kind waits for its own kind only. Work ends at a time
limit, and soon after its client has left or the server ends: `llama_py.support.stopping` has the
checks. A call that needs another kind (`require`) is restarted in threads of that kind.

Python runs one thread at a time, so work pauses at its checks while responses are generated: all
work together gets an eighth of the interpreter's time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from enum import Enum
from functools import cache
from typing import Any, TypeVar
from weakref import WeakSet

from starlette.requests import ClientDisconnect, Request

from llama_py.support.stopping import use_stop_check
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError

T = TypeVar("T")
SECONDS = 40.0  # time limit of one piece of work, including its wait for a thread
LARGE = 1 << 16  # bytes above which the work on a body is LONG
SLICE = 0.002  # seconds of CPU time before a pause
PAUSES = 7  # length of a pause: this multiple of the time before it, for each running call,
MAX_PAUSE = 0.25  # and at most this number of seconds
NICE = 10  # added to the niceness of threads that compute for long


class Work(Enum):
    """A kind of work, with its number of threads."""

    SHORT = "short", 8  # small bodies
    LONG = "long", 2  # large bodies
    PARSE = "parse", 1  # JSON of large bodies: it blocks all threads, so one at a time
    PREPARE = "prepare", 4  # samplers, grammars, checks of responses by schemas
    FETCH = "fetch", 16  # waits for other servers
    WRITE = "write", 4  # responses with many probabilities
    DECODE = "decode", 2  # images, with 3 bytes per pixel

    def __init__(self, label: str, n_threads: int) -> None:
        self.label, self.n_threads = label, n_threads


class _OtherWork(BaseException):
    """The call is of another kind; no handler of errors may take it for one."""

    def __init__(self, kind: Work) -> None:
        self.kind = kind


class _AbandonWork(BaseException):
    """The result is no longer needed."""


class _Limit:
    """Stops a call that takes too long or has no client."""

    def __init__(self) -> None:
        self.is_over, self.until, self.spent = False, time.monotonic() + SECONDS, 0.0

    def begin(self) -> None:
        self.spent = time.thread_time()

    def check(self) -> None:
        self.pause()
        if self.is_over:
            raise _AbandonWork
        if time.monotonic() > self.until:
            why = (
                f"reading the request takes more than {SECONDS:.0f} seconds; send less per request"
            )
            raise HTTPError("request_too_large", why)

    def pause(self) -> None:
        """Leave the interpreter to responses that are being generated."""
        spent = time.thread_time() - self.spent
        if spent > SLICE:
            if ANSWERS and not self.is_over:
                time.sleep(min(PAUSES * spent * len(_running), MAX_PAUSE))
            self.spent = time.thread_time()


ANSWERS: WeakSet[object] = WeakSet()  # responses that are being generated
_kind: ContextVar[Work | None] = ContextVar("kind", default=None)
_running: set[_Limit] = set()


@cache
def _threads(kind: Work) -> ThreadPoolExecutor:
    start = None if kind in (Work.SHORT, Work.FETCH) else _yield_cpu
    return ThreadPoolExecutor(kind.n_threads, f"llama-{kind.label}", start)


def _yield_cpu() -> None:
    """Lower the priority of this thread: responses are generated first if CPUs are scarce."""
    if sys.platform == "linux":  # elsewhere a priority is of the whole process
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)


def is_busy() -> bool:
    """Return True while a thread works, even for a client that has disconnected."""
    return bool(_running)


def require(kind: Work) -> None:
    """Require threads of a kind for the rest of a call, which is restarted in such a thread if
    needed."""
    if _kind.get() not in (None, kind):
        raise _OtherWork(kind)


async def run(kind: Work, call: Callable[..., T], *args: Any) -> T:
    """Return a call's result from a thread of a kind; cancellation stops the call."""
    while True:
        limit = _Limit()
        future = _threads(kind).submit(copy_context().run, _do, limit, kind, call, args)
        try:
            found: T = await asyncio.wrap_future(future)
            return found
        except _OtherWork as e:
            kind = e.kind
        finally:
            limit.is_over = True


async def read(request: Request, call: Callable[..., T], *args: Any, kind: Work | None = None) -> T:
    """Return the result of a call on a request's body, which has been read.

    The size of the body decides the default kind.

    Raises:
        ClientDisconnect: The client has left; a request with a saved stream continues without it.
    """
    if kind is None:
        kind = Work.LONG if getattr(request.state, "n_body", 0) > LARGE else Work.SHORT
    doing: Coroutine[Any, Any, tuple[T]] = run(kind, _box_result, call, args)
    if getattr(request.state, "saved", None) is not None:
        return (await doing)[0]
    found = await unless_gone(request, doing)
    if found is None:
        raise ClientDisconnect
    return found[0]


def _box_result(call: Callable[..., T], args: tuple[Any, ...]) -> tuple[T]:
    return (call(*args),)


def _do(limit: _Limit, kind: Work, call: Callable[..., T], args: tuple[Any, ...]) -> T:
    token = _kind.set(kind)
    limit.begin()
    _running.add(limit)
    try:
        with use_stop_check(limit.check):
            limit.check()
            return call(*args)
    finally:
        limit.pause()
        _running.discard(limit)
        _kind.reset(token)
