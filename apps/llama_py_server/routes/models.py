"""Routes /health, /models, and loading of models if there are several (server-models.cpp)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.models.model_pool import status_name
from llama_py_server.wire.body import read_object, text
from llama_py_server.wire.errors import HTTPError, invalid, without_folders
from llama_py_server.wire.responses import as_json

if TYPE_CHECKING:
    from llama_py.serving import ModelInfo
    from llama_py_server.models.fetches import Fetch
    from llama_py_server.models.model_pool import ModelEntry, ModelPool
    from llama_py_server.models.summary import ModelSummary


async def health(request: Request, pool: ModelPool) -> Response:
    """Return the status, once the server is ready."""
    return as_json({"status": "ok"})


async def models(request: Request, pool: ModelPool) -> Response:
    """Return all models that requests may name; `?reload=1` updates the list."""
    if not pool.several:
        summary = pool.summary(pool.single_entry)
        assert summary is not None  # it was loaded before
        return _one_model(summary, _features(request))
    if request.query_params.get("reload"):
        pool.reload()
    infos = {info.name: info for info in pool.models.info()}
    shown = [p for p in pool.entries.values() if not p.hidden and p.name in infos]
    coming = [_coming(fetch) for fetch in pool.fetches.running.values()]
    return as_json(
        {
            "object": "list",
            "data": [*(_describe_entry(pool, p, infos[p.name]) for p in shown), *coming],
            **_features(request),
        }
    )


def _features(request: Request) -> dict[str, Any]:
    """Return a field for the page if the server has tools."""
    return {"mcp_tools": True} if request.app.state.has_tools else {}


def _one_model(summary: ModelSummary, more: dict[str, Any]) -> Response:
    """Return the list of one model, for clients of OpenAI and of Ollama."""
    name, meta, n = summary.model["id"], summary.model["meta"], summary.model["meta"]["n_params"]
    known = {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": meta["size"],
        "digest": "",
        "type": "model",
        "description": "",
        "tags": summary.model["tags"],
        "capabilities": summary.capabilities,
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": summary.arch,
            "families": [summary.arch],
            "parameter_size": f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M",
            "quantization_level": meta["ftype"],
        },
    }
    return as_json({"models": [known], "object": "list", "data": [summary.model], **more})


def _coming(fetch: Fetch) -> dict[str, Any]:
    """Return the entry of a model that is being downloaded."""
    return {
        "id": fetch.name,
        "object": "model",
        "owned_by": "llama-py",
        "created": int(time.time()),
        "status": {"value": "downloading", "progress": fetch.progress},
        "source": "cache",
    }


async def model(request: Request, pool: ModelPool) -> Response:
    """Return one model; a server with a single model ignores the name."""
    if not pool.several:
        summary = pool.summary(pool.single_entry)
        assert summary is not None
        return as_json(summary.model)
    name = request.path_params["name"]
    try:
        entry = pool.find_entry(name)
    except HTTPError as e:
        raise HTTPError("not_found_error", e.message) from None
    return as_json(_describe_entry(pool, entry, pool.info(entry)))


def _describe_entry(pool: ModelPool, entry: ModelEntry, info: ModelInfo) -> dict[str, Any]:
    status: dict[str, Any] = {"value": status_name(info), "args": list(entry.args)}
    if info.error is not None:
        status |= {"failed": True, "exit_code": 1, "error": without_folders(str(info.error))}
    summary = pool.summary(entry)
    sees = entry.sees if summary is None else summary.sees
    found = {
        "id": entry.name,
        "aliases": sorted(entry.others),
        "tags": [],
        "object": "model",
        "owned_by": "llama-py",
        "created": int(time.time()),
        "status": status,
        "path": Path(entry.path).name,
        "source": entry.kind,
        "can_remove": entry.is_of_hub,
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
    }
    return found if summary is None else {**summary.model, **found, "tags": summary.model["tags"]}


async def load(request: Request, pool: ModelPool) -> Response:
    """Begin to load a model; /models shows when it is loaded."""
    try:
        entry = await _find_entry(request, pool)
    except HTTPError:
        raise HTTPError("not_found_error", "model is not found") from None
    if pool.is_there(entry):
        raise invalid("model is already running")
    pool.begin(entry)
    return as_json({"success": True})


async def unload(request: Request, pool: ModelPool) -> Response:
    """Unload a model once its responses have ended, or cancel its download."""
    name = text(await read_object(request), "model")
    if name in pool.fetches.running:
        await pool.fetches.cancel(name)
        return as_json({"success": True})
    try:
        entry = await _find_entry(request, pool)
    except HTTPError:
        raise invalid("model is not found") from None
    if not pool.is_there(entry):
        raise invalid("model is not running")
    pool.models.unload_when_idle(entry.name)
    return as_json({"success": True})


async def _find_entry(request: Request, pool: ModelPool) -> ModelEntry:
    if not pool.several:
        raise HTTPError("not_found_error", "File Not Found")
    return pool.find_entry(text(await read_object(request), "model"))
