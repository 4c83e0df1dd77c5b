"""Routes for downloading and removing models of the Hub (server-models.cpp):

POST /models {"model": "USER/MODEL:TYPE"}    start a download
DELETE /models?model=USER/MODEL:TYPE         remove it from the Hub's cache
GET /models/sse                              progress, and models loaded or unloaded
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from llama_py_server.wire import work
from llama_py_server.wire.access import is_manager
from llama_py_server.wire.body import read_object, text
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import as_json
from llama_py_tools.command.params import FileParams
from llama_py_tools.models import hub

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelEntry, ModelPool

LEAVING = 60.0  # seconds in which a model must finish its responses


async def fetch(request: Request, pool: ModelPool) -> Response:
    """Start a download; an unknown model is reported at once, the rest continues after the
    response."""
    _check_may(request, pool)
    name = text(await read_object(request), "model")
    if not name:
        raise invalid("model must be a non-empty string")
    token = pool.manages.token
    wanted = FileParams(hf_repo=name, hf_token=token)
    full, sizes = await work.run(work.Work.FETCH, hub.to_fetch, wanted)
    if full in pool.entries or full in pool.fetches.running:
        raise invalid(f"model '{full}' already exists")
    pool.fetches.begin(full, sizes, token).n_waiting += 1  # continues without its client
    return as_json({"success": True})


async def remove(request: Request, pool: ModelPool) -> Response:
    """Remove a model; if it is in use, once that has ended."""
    _check_may(request, pool)
    name = request.query_params.get("model", "")
    if name in pool.fetches.running:
        await pool.fetches.cancel(name)
        pool.feed.send("model_remove", name)
        return as_json({"success": True})
    entry = pool.find_entry(name)
    await remove_entry(pool, entry)
    return as_json({"success": True})


async def remove_entry(pool: ModelPool, entry: ModelEntry) -> None:
    """Remove a model of the Hub, once it is not in use. HTTPError for other models, and if its
    files cannot be removed."""
    if not entry.is_of_hub:
        raise invalid(f"model '{entry.name}' is not removable (not from the hub's cache)")
    if pool.is_there(entry):
        pool.models.unload_when_idle(entry.name)
        until = time.monotonic() + LEAVING
        while pool.is_there(entry):
            if time.monotonic() > until:
                raise HTTPError("unavailable_error", f"model '{entry.name}' is in use")
            await asyncio.sleep(0.05)
    await work.run(work.Work.FETCH, _remove, entry.name)
    pool.reload()
    pool.feed.send("model_remove", entry.name)


def _remove(name: str) -> None:
    """Remove a model's files. HTTPError if a file cannot be removed."""
    why = "its file is still cached"
    try:
        hub.remove_model(name)
    except OSError as e:
        why = e.strerror or type(e).__name__
    if name in hub.cached_names():
        raise HTTPError("server_error", f"model '{name}' could not be removed: {why}")


async def events(request: Request, pool: ModelPool) -> Response:
    """Return a stream of events about models."""
    if not pool.several:
        raise HTTPError("not_found_error", "File Not Found")
    return StreamingResponse(pool.feed.stream(), media_type="text/event-stream")


def _check_may(request: Request, pool: ModelPool) -> None:
    if not pool.several:
        raise HTTPError("not_found_error", "File Not Found")
    check_permission(request, pool)


def check_permission(request: Request, pool: ModelPool) -> None:
    """Raise HTTPError unless the client may change models: downloads fill the disk, removals are
    final."""
    who = pool.manages.who
    if who == "none":
        raise HTTPError("permission_error", pool.manages.why)
    if who == "here" and not is_manager(request):
        raise HTTPError(
            "permission_error",
            "only clients of this machine and clients with a key may download and remove models; "
            "set --models-manage all to permit every client",
        )
