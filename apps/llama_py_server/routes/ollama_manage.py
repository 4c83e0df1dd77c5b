"""Routes of Ollama's API that change models: /api/pull, /api/delete, /api/create, /api/copy."""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from llama_py.chat import ChatTemplate
from llama_py_server.models.fetches import LOOK
from llama_py_server.models.names import LATEST, find_name, strip_host
from llama_py_server.routes.hub import check_permission, remove_entry
from llama_py_server.routes.ollama_models import read_name
from llama_py_server.schema import from_ollama
from llama_py_server.schema.completion import PARAMS
from llama_py_server.schema.fields import read_fields
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, inner, objects, read_object, text
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import GONE, as_json
from llama_py_server.wire.sse import LINES, Frame, dumps
from llama_py_tools.command.params import FileParams
from llama_py_tools.models import created, hub

if TYPE_CHECKING:
    from llama_py_server.models.fetches import Fetch
    from llama_py_server.models.model_pool import ModelPool

Status = dict[str, Any]
Recipes = dict[str, created.Recipe]
_LOCK = threading.Lock()  # of the file of created models
MAX_CREATED = 1024  # created models
MAX_CTX = 2**31 - 1
_PART = r"\w[\w.-]{0,79}"
_NAME = re.compile(rf"{_PART}(/{_PART}){{0,3}}(:{_PART})?", re.ASCII)
_GO = re.compile(r"\{\{-?\s*(\.|(if|range|with|template)\s)")  # begins an action of Go's templates
_UNSUPPORTED = ("files", "adapters", "quantize", "draft_files", "renderer", "parser", "remote_host")
SUCCESS = {"status": "success"}


async def pull(request: Request, pool: ModelPool) -> Response:
    """Download a model of the Hub; the client's end cancels it."""
    check_permission(request, pool)
    body = await read_object(request)
    name = strip_host(read_name(body)).removesuffix(f":{LATEST}")
    if find_name(name, pool.entries) is not None:
        return _answer(body, [{"status": "pulling manifest"}, SUCCESS])
    if name.count("/") != 1:
        why = "file does not exist; name a model of the Hugging Face Hub, USER/MODEL:TYPE"
        raise HTTPError("not_found_error", f"pull model manifest: {why}")
    token = pool.manages.token
    wanted = FileParams(hf_repo=name, hf_token=token)
    full, sizes = await work.run(work.Work.FETCH, hub.to_fetch, wanted)
    if full in pool.entries:
        return _answer(body, [{"status": "pulling manifest"}, SUCCESS])
    fetch = pool.fetches.running.get(full) or pool.fetches.begin(full, sizes, token)
    fetch.n_waiting += 1
    steps = _watch(pool, fetch)
    if body.get("stream") is not False:
        return StreamingResponse(_write_lines(steps), media_type=LINES.media_type)
    return await unless_gone(request, _take_last(steps)) or GONE


async def _watch(pool: ModelPool, fetch: Fetch) -> AsyncIterator[Status]:
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


async def _write_lines(steps: AsyncIterator[Status]) -> AsyncIterator[bytes]:
    try:
        async for one in steps:
            yield LINES.encode(Frame(one), dumps)
    except HTTPError as e:
        yield LINES.encode(Frame({"error": e.message}), dumps)


async def _take_last(steps: AsyncIterator[Status]) -> Response:
    last: Status = {}
    async for one in steps:
        last = one
    return as_json(last)


def _answer(body: Body, steps: list[Status]) -> Response:
    """Return all steps of a finished change, or without a stream the last."""
    if body.get("stream") is False:
        return as_json(steps[-1])
    lines = b"".join(LINES.encode(Frame(one), dumps) for one in steps)
    return Response(lines, media_type=LINES.media_type)


async def delete(request: Request, pool: ModelPool) -> Response:
    """Remove a created model, or a model of the Hub from the cache."""
    check_permission(request, pool)
    entry = pool.find_entry(read_name(await read_object(request)))
    if entry.kind != "created":
        await remove_entry(pool, entry)
        return Response()
    await _update(pool, lambda recipes: recipes.pop(entry.name, None))
    return Response()


async def create(request: Request, pool: ModelPool) -> Response:
    """Create a model from another one, with other options, template or messages."""
    check_permission(request, pool)
    body = await read_object(request)
    for name in _UNSUPPORTED:
        if body.get(name):
            raise invalid(f"'{name}' is not supported; create a model with 'from'")
    source = text(body, "from")
    if not source:
        raise invalid("neither 'from' or 'files' was specified")
    recipe = await work.read(request, _read_recipe, body)
    await _add(pool, read_name(body), source, recipe)
    return _answer(body, [{"status": "writing manifest"}, SUCCESS])


async def copy(request: Request, pool: ModelPool) -> Response:
    """Give another name to a model."""
    check_permission(request, pool)
    body = await read_object(request)
    names = text(body, "source"), text(body, "destination")
    for field, name in zip(("source", "destination"), names, strict=True):
        if not name:
            raise invalid(f"{field} {name!r} is invalid")
    await _add(pool, names[1], names[0], {})
    return Response()


def _read_recipe(body: Body) -> created.Recipe:
    """Return the recipe of a request; HTTPError for wrong fields, ModelError for the template."""
    parameters, messages = inner(body, "parameters"), objects(body, "messages")
    check_length("messages", len(messages))
    n_ctx = parameters.get("num_ctx")
    if n_ctx is not None and not (type(n_ctx) is int and 1 <= n_ctx <= MAX_CTX):
        raise invalid(f"parameter 'num_ctx' must be a positive integer, got {n_ctx!r}")
    given = from_ollama.options(parameters, n_ctx or MAX_CTX)
    settings = read_fields(given, PARAMS) | ({"n_ctx": n_ctx} if n_ctx is not None else {})
    for name in ("template", "system"):
        if not isinstance(body.get(name), str | None):
            raise invalid(f"'{name}' must be a string")
    if template := text(body, "template"):
        if _GO.search(template):
            raise invalid("'template' is a Go template; send a Jinja template, like in GGUF files")
        ChatTemplate(template).check()
    from_ollama.chat_body({"messages": messages}, n_ctx or MAX_CTX)
    licenses = body.get("license") or []
    licenses = licenses if isinstance(licenses, list) else [licenses]
    if not all(isinstance(one, str) for one in licenses):
        raise invalid("'license' must be a string or an array of strings")
    found = {
        "settings": settings,
        "parameters": dict(parameters),
        "template": template,
        "system": text(body, "system"),
        "messages": messages,
        "license": "\n".join(licenses),
    }
    return {name: value for name, value in found.items() if value}


async def _add(pool: ModelPool, name: str, source: str, recipe: Mapping[str, Any]) -> None:
    """Add a created model, or replace one. HTTPError for an invalid name."""
    name = name.removesuffix(f":{LATEST}")
    if not _NAME.fullmatch(name):
        raise invalid(f"model name {name[:100]!r} is invalid; use letters, digits, '.', '-', '_'")
    base = pool.find_entry(source)
    found = [e for e in pool.entries.values() if e.kind != "created"]
    taken = {one for entry in found for one in (entry.name, *entry.others)}
    if name in taken:
        raise invalid(f"model '{name}' already exists; use another name")
    whole = _merge(base.recipe or {"from": base.name}, recipe)

    def change(recipes: Recipes) -> None:
        if len(recipes) >= MAX_CREATED and name not in recipes:
            raise invalid(f"the server has {MAX_CREATED} created models, its maximum; delete some")
        recipes[name] = whole

    await _update(pool, change)


def _merge(base: Mapping[str, Any], recipe: Mapping[str, Any]) -> created.Recipe:
    """Return the recipe of a model that is created from a created one."""
    found = {**base, **recipe}
    for field in ("settings", "parameters"):
        if field in base and field in recipe:
            found[field] = {**base[field], **recipe[field]}
    return found


async def _update(pool: ModelPool, change: Callable[[Recipes], Any]) -> None:
    """Change the file of created models, and update the list of models."""

    def replace_file() -> None:
        with _LOCK:
            recipes = created.read_created()
            change(recipes)
            created.write_created(recipes)

    await work.run(work.Work.FETCH, replace_file)
    pool.reload()
