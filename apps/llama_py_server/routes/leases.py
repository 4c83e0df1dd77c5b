"""Lease of a request's model, until the response is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llama_py_server.models.summary import ModelSummary, summarize
from llama_py_server.stream.replay import saved_stream
from llama_py_server.wire.body import read_body, read_json, text
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import invalid
from llama_py_server.wire.responses import GONE

if TYPE_CHECKING:
    from llama_py.serving import Lease
    from llama_py_server.models.model_pool import ModelEntry, ModelPool, ServedModel
    from llama_py_server.models.state import ModelState

Handler = Callable[[Request, "ModelState"], Awaitable[Response]]  # handler for a loaded model


class LeasedResponse:
    """A response that needs a model until it is sent."""

    def __init__(self, response: Response, lease: Lease[ServedModel]) -> None:
        self.response, self.lease = response, lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.response(scope, receive, send)
        finally:
            self.lease.end()


async def find_entry(request: Request, pool: ModelPool) -> ModelEntry:
    """Return the model that a request names, or the usual one."""
    if not pool.several:
        return pool.single_entry
    name = request.query_params.get("model", "")
    if request.method == "POST":
        body = await read_json(request)
        name = text(body, "model", name) if isinstance(body, dict) else name
    return (None if name else pool.usual_entry) or pool.find_entry(name)


async def lease(request: Request, pool: ModelPool) -> Lease[ServedModel] | None:
    """Return the model of a request, once it is in memory. None if the client has left."""
    entry = await find_entry(request, pool)
    if not _may_load(request, pool) and not pool.is_there(entry):
        raise invalid("model is not loaded")
    future = pool.models.acquire(entry.name)
    if future.done():
        return await pool.take_loaded(entry, future)
    await read_body(request)  # must precede the watch for a disconnect
    waiting = pool.take_loaded(entry, future)
    saved = saved_stream(request)
    if saved is not None:  # continues without its client
        return await saved.unless_stopped(waiting)
    return await unless_gone(request, waiting)


async def respond(request: Request, pool: ModelPool, handler: Handler) -> Any:
    """Return a handler's response, which keeps the request's model loaded until it is sent."""
    leased = await lease(request, pool)
    if leased is None:
        return GONE
    request.state.lease = leased
    try:
        doing = handler(request, leased.served.state)
        found = await (doing if pool.loss is None else pool.loss.await_result(doing))
        return LeasedResponse(found, leased)
    except BaseException:
        leased.end()
        raise


def _may_load(request: Request, pool: ModelPool) -> bool:
    given = request.query_params.get("autoload", "")
    return given in ("true", "1") if given else pool.autoload


async def find_summary(request: Request, pool: ModelPool) -> tuple[ModelEntry, ModelSummary] | None:
    """Return the model named in a request, and load it if its facts are unknown. None if the
    client has disconnected."""
    entry = await find_entry(request, pool)
    found = pool.summary(entry)
    if found is None:
        leased = await lease(request, pool)
        if leased is None:
            return None
        found = summarize(leased.served.state)
        leased.end()
    return entry, found
