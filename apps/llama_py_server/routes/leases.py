"""The model of a request: which it is, and its lease until the response is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llama_py_server.models.summary import Told, told_of
from llama_py_server.stream.replay import kept_of
from llama_py_server.wire.body import json_of, text
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import invalid

if TYPE_CHECKING:
    from llama_py.serving import Lease
    from llama_py_server.models.shelf import Loaded, Place, Shelf


class Held:
    """A response that needs a model until it is sent."""

    def __init__(self, response: Response, lease: Lease[Loaded]) -> None:
        self.response, self.lease = response, lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.response(scope, receive, send)
        finally:
            self.lease.end()


async def _place(request: Request, shelf: Shelf) -> Place:
    """Return the model that a request means."""
    if not shelf.several:
        return shelf.only
    name = request.query_params.get("model", "")
    if request.method == "POST":
        body = await json_of(request)
        name = text(body, "model", name) if isinstance(body, dict) else name
    return shelf.named(name)


async def lease(request: Request, shelf: Shelf) -> Lease[Loaded] | None:
    """Return the model of a request, once it is in memory. None if the client has left."""
    place = await _place(request, shelf)
    if not _may_load(request, shelf) and not shelf.is_there(place):
        raise invalid("model is not loaded")
    future = shelf.models.ask(place.name)
    if future.done():
        return await shelf.arrived(place, future)
    await request.body()  # before the client is watched
    waiting = shelf.arrived(place, future)
    kept = kept_of(request)
    if kept is not None:  # which goes on without its client
        return await kept.unless_stopped(waiting)
    return await unless_gone(request, waiting)


def _may_load(request: Request, shelf: Shelf) -> bool:
    given = request.query_params.get("autoload", "")
    return given in ("true", "1") if given else shelf.autoload


async def summary(request: Request, shelf: Shelf) -> tuple[Place, Told] | None:
    """Return the model that a request asks about, and load it if nothing is known of it. None if
    the client has left."""
    place = await _place(request, shelf)
    found = shelf.told(place)
    if found is None:
        leased = await lease(request, shelf)
        if leased is None:
            return None
        found = told_of(leased.served.state)
        leased.end()
    return place, found
