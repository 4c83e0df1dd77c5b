"""/health, /models, and what loads models, where there are several (server-models.cpp)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.models.shelf import status_of
from llama_py_server.wire.body import object_of, text
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import as_json

if TYPE_CHECKING:
    from llama_py.serving import ModelInfo
    from llama_py_server.models.fetches import Fetch
    from llama_py_server.models.shelf import Place, Shelf
    from llama_py_server.models.summary import Told


async def health(request: Request, shelf: Shelf) -> Response:
    return as_json({"status": "ok"})


async def models(request: Request, shelf: Shelf) -> Response:
    """All that may be asked for, with `?reload=1` those that there are now."""
    if not shelf.several:
        told = shelf.told(shelf.only)
        assert told is not None  # it was in memory once
        return _one_model(told)
    if request.query_params.get("reload"):
        shelf.reload()
    infos = {info.name: info for info in shelf.models.info()}
    shown = [p for p in shelf.places.values() if not p.hidden and p.name in infos]
    coming = [_coming(fetch) for fetch in shelf.fetches.running.values()]
    return as_json(
        {"object": "list", "data": [*(_shown(shelf, p, infos[p.name]) for p in shown), *coming]}
    )


def _one_model(told: Told) -> Response:
    """For OpenAI's clients, and for those of Ollama."""
    name, meta, n = told.model["id"], told.model["meta"], told.model["meta"]["n_params"]
    known = {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": meta["size"],
        "digest": "",
        "type": "model",
        "description": "",
        "tags": told.model["tags"],
        "capabilities": told.capabilities,
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": told.arch,
            "families": [told.arch],
            "parameter_size": f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M",
            "quantization_level": meta["ftype"],
        },
    }
    return as_json({"models": [known], "object": "list", "data": [told.model]})


def _coming(fetch: Fetch) -> dict[str, Any]:
    """A model that is being fetched."""
    return {
        "id": fetch.name,
        "object": "model",
        "owned_by": "llama-py",
        "created": int(time.time()),
        "status": {"value": "downloading", "progress": fetch.progress},
        "source": "cache",
    }


async def model(request: Request, shelf: Shelf) -> Response:
    """One of them; where there is only one, whichever is asked for."""
    if not shelf.several:
        told = shelf.told(shelf.only)
        assert told is not None
        return as_json(told.model)
    name = request.path_params["name"]
    try:
        place = shelf.named(name)
    except HTTPError as e:
        raise HTTPError("not_found_error", e.message) from None
    return as_json(_shown(shelf, place, shelf.info(place)))


def _shown(shelf: Shelf, place: Place, info: ModelInfo) -> dict[str, Any]:
    status: dict[str, Any] = {"value": status_of(info), "args": list(place.flags)}
    if info.error is not None:
        status |= {"failed": True, "exit_code": 1, "error": str(info.error)}
    told = shelf.told(place)
    sees = place.sees if told is None else told.sees
    found = {
        "id": place.name,
        "aliases": sorted(place.others),
        "tags": [],
        "object": "model",
        "owned_by": "llama-py",
        "created": int(time.time()),
        "status": status,
        "path": place.path,
        "source": place.kind,
        "can_remove": place.is_of_hub,
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
    }
    return found if told is None else {**told.model, **found, "tags": told.model["tags"]}


async def load(request: Request, shelf: Shelf) -> Response:
    """Begin to load a model; /models tells when it is there."""
    try:
        place = await _named(request, shelf)
    except HTTPError:
        raise HTTPError("not_found_error", "model is not found") from None
    if shelf.is_there(place):
        raise invalid("model is already running")
    shelf.begin(place)
    return as_json({"success": True})


async def unload(request: Request, shelf: Shelf) -> Response:
    """Let a model leave, once what it answers has ended; or one that is being fetched not come."""
    name = text(await object_of(request), "model")
    if name in shelf.fetches.running:
        await shelf.fetches.cancel(name)
        return as_json({"success": True})
    try:
        place = await _named(request, shelf)
    except HTTPError:
        raise invalid("model is not found") from None
    if not shelf.is_there(place):
        raise invalid("model is not running")
    shelf.models.leave(place.name)
    return as_json({"success": True})


async def _named(request: Request, shelf: Shelf) -> Place:
    if not shelf.several:
        raise HTTPError("not_found_error", "File Not Found")
    return shelf.named(text(await object_of(request), "model"))
