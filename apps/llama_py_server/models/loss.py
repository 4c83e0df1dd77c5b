"""Shutdown of a server over ranks after the loss of a rank, with errors for its clients."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from llama_py_server.wire.errors import HTTPError
from llama_py_tools.command.logs import tell

T = TypeVar("T")
TELLING = 2.0  # seconds in which open and new requests get their error


class Loss:
    """State of a lost rank: `error` is set then, and all listeners are called in their event
    loops."""

    def __init__(self) -> None:
        self.error: HTTPError | None = None
        self._listening: dict[Callable[[HTTPError], None], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise HTTPError if a rank is lost."""
        if self.error is not None:
            raise self.error

    def listen(self, told: Callable[[HTTPError], None]) -> Callable[[], None]:
        """Register a function to call when a rank is lost; return a function that removes it."""
        with self._lock:
            self.check()
            self._listening[told] = asyncio.get_running_loop()

        def forget() -> None:
            self._listening.pop(told, None)

        return forget

    async def await_result(self, doing: Awaitable[T]) -> T:
        """Await a result; HTTPError if a rank is lost before."""
        task = asyncio.ensure_future(doing)
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def report_loss(error: HTTPError) -> None:
            if not lost.done():
                lost.set_exception(error)

        try:
            forget = self.listen(report_loss)
        except HTTPError:
            task.cancel()
            raise
        try:
            both: set[asyncio.Future[Any]] = {task, lost}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                lost.result()
            return task.result()
        finally:
            forget()
            lost.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def end(self, why: str) -> None:
        """Notify all listeners and end this process, which cannot compute without the rank."""
        with self._lock:
            self.error = HTTPError("unavailable_error", f"{why}; the server is stopping")
            listening = list(self._listening.items())
        tell(f"{why}; new requests are rejected")
        for told, loop in listening:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(told, self.error)
        time.sleep(TELLING)
        os._exit(1)
