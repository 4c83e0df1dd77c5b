"""Detection of clients that have left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive

T = TypeVar("T")


async def unless_gone(request: Request, doing: Awaitable[T]) -> T | None:
    """Await a result; if the client disconnects before, cancel it and return None."""
    task = asyncio.ensure_future(doing)
    gone = asyncio.ensure_future(wait_until_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        await cancel_task(gone)
        await cancel_task(task)


async def wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_task(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


def holder(request: Request) -> int:
    """Return the number of the request's API key; 0 without keys."""
    return int(getattr(request.state, "holder", 0))
