"""Routes of Ollama's API that change models: /api/pull, /api/push, /api/delete, /api/copy."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ggml_py.errors import GGMLError
from llama_py_server.models.fetches import LOOK
from llama_py_server.models.names import LATEST, find_name, strip_host
from llama_py_server.routes.hub import check_permission, remove_entry
from llama_py_server.routes.ollama_models import read_name
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, read_object, text
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError, as_http_error, invalid
from llama_py_server.wire.responses import GONE, as_json
from llama_py_server.wire.sse import LINES, Frame, dumps
from llama_py_tools.command.params import FileParams
from llama_py_tools.models import blobs, created, hub

if TYPE_CHECKING:
    from llama_py_server.models.fetches import Fetch
    from llama_py_server.models.model_pool import ModelPool

Status = dict[str, Any]
Recipes = dict[str, created.Recipe]
_LOCK = threading.Lock()  # of the file of created models
MAX_CREATED = 1024  # created models
_PART = r"\w[\w.-]{0,79}"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,3}}(:{_PART})?", re.ASCII)


async def pull(request: Request, pool: ModelPool) -> Response:
    """Download a model of the Hub; the client's end cancels it."""
    check_permission(request, pool)
    body = await read_object(request)
    name = strip_host(read_name(body)).removesuffix(f":{LATEST}")
    if find_name(name, pool.entries) is not None:
        return await respond_steps(request, body, _list_steps("pulling manifest", "success"))
    if name.count("/") != 1:
        why = "file does not exist; name a model of the Hugging Face Hub, USER/MODEL:TYPE"
        raise HTTPError("not_found_error", f"pull model manifest: {why}")
    token = pool.manages.token
    wanted = FileParams(hf_repo=name, hf_token=token)
    full, sizes = await work.run(work.Work.FETCH, hub.to_fetch, wanted)
    if full in pool.entries:
        return await respond_steps(request, body, _list_steps("pulling manifest", "success"))
    fetch = pool.fetches.running.get(full) or pool.fetches.begin(full, sizes, token)
    fetch.n_waiting += 1
    return await respond_steps(request, body, _watch(pool, fetch))


async def _list_steps(*statuses: str) -> AsyncGenerator[Status, None]:
    for status in statuses:
        yield {"status": status}


async def push(request: Request, pool: ModelPool) -> Response:
    """Refuse to upload a model: the server has no account at a registry."""
    name = read_name(await read_object(request))
    pool.find_entry(name)
    why = (
        "you are not authorized to push to this namespace: llama-py-server has no registry; "
        "upload the file to the Hugging Face Hub, such as with: hf upload USER/MODEL FILE"
    )
    raise HTTPError("permission_error", why)


async def _watch(pool: ModelPool, fetch: Fetch) -> AsyncGenerator[Status, None]:
    """Yield the progress of a download. HTTPError if it fails."""
    try:
        yield {"status": "pulling manifest"}
        while fetch.watching is not None and not fetch.watching.done():
            for path, n in fetch.progress.items():
                digest = hashlib.sha256(path.encode()).hexdigest()
                known = {"digest": f"sha256:{digest}", "total": n["total"], "completed": n["done"]}
                yield {"status": f"pulling {digest[:12]}", **known}
            await asyncio.wait([fetch.watching], timeout=LOOK)
        if fetch.name not in pool.entries:
            raise HTTPError("server_error", f"pull {fetch.name}: {fetch.error or 'cancelled'}")
        for status in ("verifying sha256 digest", "writing manifest", "success"):
            yield {"status": status}
    finally:
        fetch.n_waiting -= 1
        if fetch.watching is not None and not fetch.watching.done() and fetch.n_waiting == 0:
            fetch.cancel()


async def respond_steps(
    request: Request, body: Body, steps: AsyncGenerator[Status, None]
) -> Response:
    """Return all steps of a change as lines, or without a stream the last. An error before the
    first step is raised."""
    first = await steps.__anext__()
    if body.get("stream") is not False:
        return StreamingResponse(_write_lines(first, steps), media_type=LINES.media_type)
    return await unless_gone(request, _take_last(first, steps)) or GONE


async def _write_lines(
    first: Status, steps: AsyncGenerator[Status, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(steps):
        yield LINES.encode(Frame(first), dumps)
        try:
            async for one in steps:
                yield LINES.encode(Frame(one), dumps)
        except (HTTPError, GGMLError, OSError) as e:
            yield LINES.encode(Frame({"error": as_http_error(e).message}), dumps)


async def _take_last(last: Status, steps: AsyncGenerator[Status, None]) -> Response:
    async with aclosing(steps):
        async for one in steps:
            last = one
    return as_json(last)


async def delete(request: Request, pool: ModelPool) -> Response:
    """Remove a created model, or a model of the Hub from the cache."""
    check_permission(request, pool)
    entry = pool.find_entry(read_name(await read_object(request)))
    if entry.kind != "created":
        await remove_entry(pool, entry)
        return Response()
    await update_created(pool, lambda recipes: recipes.pop(entry.name, None))
    return Response()


async def copy(request: Request, pool: ModelPool) -> Response:
    """Give another name to a model."""
    check_permission(request, pool)
    body = await read_object(request)
    names = text(body, "source"), text(body, "destination")
    for field, name in zip(("source", "destination"), names, strict=True):
        if not name:
            raise invalid(f"{field} {name!r} is invalid")
    base = pool.find_entry(names[0])
    await add_created(pool, check_name(pool, names[1]), base.recipe or {"from": base.name})
    return Response()


def check_name(pool: ModelPool, name: str) -> str:
    """Return the name of a new created model; HTTPError if it is invalid, or of another model."""
    name = name.removesuffix(f":{LATEST}")
    if not _NAME.fullmatch(name):
        raise invalid(f"model name {name[:100]!r} is invalid; use letters, digits, '.', '-', '_'")
    found = [e for e in pool.entries.values() if e.kind != "created"]
    if name in {one for entry in found for one in (entry.name, *entry.others)}:
        raise invalid(f"model '{name}' already exists; use another name")
    return name


async def add_created(pool: ModelPool, name: str, recipe: Mapping[str, Any]) -> None:
    """Add a created model, or replace one. HTTPError if the server has too many."""

    def change(recipes: Recipes) -> created.Recipe | None:
        if len(recipes) >= MAX_CREATED and name not in recipes:
            raise invalid(f"the server has {MAX_CREATED} created models, its maximum; delete some")
        before = recipes.get(name)
        recipes[name] = dict(recipe)
        return before

    await update_created(pool, change)


async def update_created(
    pool: ModelPool, change: Callable[[Recipes], created.Recipe | None]
) -> None:
    """Change the file of created models, and update the list of models.

    change   changes the recipes and returns the recipe that it removed
    """

    def replace_file() -> tuple[Recipes, created.Recipe]:
        with _LOCK:
            recipes = created.read_created()
            removed = change(recipes)
            created.write_created(recipes)
        return recipes, removed or {}

    recipes, removed = await work.run(work.Work.FETCH, replace_file)
    pool.reload()
    await work.run(work.Work.FETCH, blobs.remove_unused, recipes.values(), removed)
