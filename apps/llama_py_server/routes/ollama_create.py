"""Routes of Ollama's API that create models and take their files: /api/create, /api/blobs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from llama_py.chat import ChatTemplate
from llama_py.chat.named import template_source
from llama_py_server.models.created_files import find_model, read_adapters, read_files
from llama_py_server.models.quantize_job import quantize, read_type
from llama_py_server.routes.hub import check_permission
from llama_py_server.routes.ollama_manage import Status, add_created, check_name, respond_steps
from llama_py_server.routes.ollama_models import read_name
from llama_py_server.schema import from_ollama
from llama_py_server.schema.completion import PARAMS
from llama_py_server.schema.fields import read_fields
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, check_length, inner, objects, read_object, text
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_tools.models import blobs, created

if TYPE_CHECKING:
    from llama_py.gguf.file_types import FileType
    from llama_py_server.models.model_pool import ModelPool

MAX_CTX = 2**31 - 1
PIECE = 1 << 22  # bytes of an upload that are written at once
_UNSUPPORTED = ("draft_files", "draft_quantize", "renderer", "parser", "remote_host")
_MERGED = ("settings", "parameters")  # objects that are merged with the base's
_LAYERS = ("template", "system", "parameters", "messages", "license")


class CreatedBase(NamedTuple):
    """The model that a created model is based on: its recipe, and its file."""

    recipe: created.Recipe
    path: str


async def head_blob(request: Request, pool: ModelPool) -> Response:
    """Return 200 if the server has a file with this digest."""
    check_permission(request, pool)
    digest = str(request.path_params["digest"])
    if not blobs.has_blob(digest):
        raise HTTPError("not_found_error", f"blob {digest!r} not found")
    return Response()


async def post_blob(request: Request, pool: ModelPool) -> Response:
    """Take a file for a created model; its contents must have the digest of the path."""
    check_permission(request, pool)
    digest = str(request.path_params["digest"])
    if blobs.has_blob(digest):
        return Response()
    size = request.headers.get("content-length", "")
    writer = await work.run(work.Work.FETCH, blobs.BlobWriter, digest)
    try:
        free = shutil.disk_usage(writer.path.parent).free
        if size.isdecimal() and len(size) < 20 and int(size) > free:
            why = f"the disk has {free} free bytes, and the file has {size}; delete some models"
            raise HTTPError("unavailable_error", why)
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) >= PIECE:
                await work.run(work.Work.FETCH, writer.write, data)
                data = bytearray()
        await work.run(work.Work.FETCH, writer.write, data)
        await work.run(work.Work.FETCH, writer.finish)
    finally:
        writer.close()
    return Response(status_code=201)


async def create(request: Request, pool: ModelPool) -> Response:
    """Create a model from another one or from uploaded files, with other options, template,
    messages, adapters or quantization."""
    check_permission(request, pool)
    body = await read_object(request)
    for name in _UNSUPPORTED:
        if body.get(name):
            raise invalid(f"'{name}' is not supported; omit it")
    name, source = check_name(pool, read_name(body)), text(body, "from")
    if bool(source) == bool(body.get("files")):
        why = "set either 'from' or 'files'"
        raise invalid(why if source else f"neither 'from' or 'files' was specified; {why}")
    recipe = await work.read(request, read_recipe, body)
    base = await work.read(request, _read_base, pool, body)
    if body.get("adapters"):
        recipe["adapters"] = await work.read(request, read_adapters, body, base.path)
    kind = text(body, "quantize") or text(body, "quantization")
    wanted = await work.read(request, read_type, kind, base.path) if kind else None
    return await respond_steps(request, body, _create(pool, name, base, recipe, wanted))


def _read_base(pool: ModelPool, body: Body) -> CreatedBase:
    if source := text(body, "from"):
        entry = pool.find_entry(source)
        return CreatedBase(dict(entry.recipe) or {"from": entry.name}, entry.path)
    recipe = {"files": read_files(body)}
    return CreatedBase(recipe, str(find_model(recipe) or ""))


async def _create(
    pool: ModelPool, name: str, base: CreatedBase, recipe: created.Recipe, wanted: FileType | None
) -> AsyncGenerator[Status, None]:
    """Create a model, and yield Ollama's lines about it."""
    whole = {**base.recipe, **recipe}
    for part in _MERGED:
        if part in base.recipe and part in recipe:
            whole[part] = {**base.recipe[part], **recipe[part]}
    if "from" not in base.recipe:
        yield {"status": "parsing GGUF"}
    if wanted is not None:
        digest = ""
        async with aclosing(quantize(base.path, wanted)) as steps:
            async for step in steps:
                yield step
                digest = step.get("digest", "")
        others = {n: d for n, d in whole.get("files", {}).items() if n.startswith("mmproj")}
        whole["files"] = {"model.gguf": digest, **others}
        await work.run(work.Work.FETCH, blobs.link_files, whole["files"])
    for digest in whole.get("files", {}).values():
        yield {"status": f"using existing layer {digest}"}
    for layer in _LAYERS:
        if layer in recipe:
            found = hashlib.sha256(json.dumps(recipe[layer]).encode()).hexdigest()
            yield {"status": f"creating new layer sha256:{found}"}
    yield {"status": "writing manifest"}
    await asyncio.shield(add_created(pool, name, whole))  # a client may disconnect
    yield {"status": "success"}


def read_recipe(body: Body) -> created.Recipe:
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
        ChatTemplate(template_source(template)).check()
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
