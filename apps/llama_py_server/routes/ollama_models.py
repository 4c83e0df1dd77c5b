"""Routes of Ollama's API for models: /api/tags, /api/ps, /api/show."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from llama_py.chat.named import template_source
from llama_py_server.models.facts import FileFacts, list_capabilities, read_all, read_facts
from llama_py_server.models.names import with_tag
from llama_py_server.wire import work
from llama_py_server.wire.body import Body, read_object, text
from llama_py_server.wire.errors import UnknownModel, invalid
from llama_py_server.wire.responses import as_long_json

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelEntry, ModelPool

NEVER = "2318-01-01T00:00:00Z"  # end of a model that is never unloaded


class ListedModel(NamedTuple):
    """A model of the list: its name, the path of its file, and its entry."""

    name: str
    path: str
    entry: ModelEntry


def _list_models(pool: ModelPool) -> Iterator[ListedModel]:
    for entry in [*pool.entries.values()]:
        name, path = entry.name, entry.path
        if not pool.several and (summary := pool.summary(entry)) is not None:
            name, path = summary.model["id"], summary.path
        if path and not entry.hidden:
            yield ListedModel(name, path, entry)


async def tags(request: Request, pool: ModelPool) -> Response:
    """Return all models that requests may name."""
    return await work.run(work.Work.LONG, _write_tags, [*_list_models(pool)])


def _write_tags(models: list[ListedModel]) -> Response:
    known = [(one, facts) for one in models if (facts := read_facts(one.path)) is not None]
    found = [_describe(one, facts) | {"modified_at": facts.change_time} for one, facts in known]
    return as_long_json({"models": sorted(found, key=lambda one: str(one["name"]).lower())})


def _describe(one: ListedModel, facts: FileFacts) -> dict[str, Any]:
    name = with_tag(one.name)
    return {
        "name": name,
        "model": name,
        "size": facts.size,
        "digest": facts.digest,
        "details": _details(facts),
    }


def _details(facts: FileFacts) -> dict[str, Any]:
    n = facts.n_params
    return {
        "parent_model": "",
        "format": "gguf",
        "family": facts.arch,
        "families": [facts.arch],
        "parameter_size": f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M",
        "quantization_level": facts.kind,
        "context_length": facts.number("context_length"),
        "embedding_length": facts.number("embedding_length"),
    }


async def ps(request: Request, pool: ModelPool) -> Response:
    """Return the models in memory."""
    infos = {info.name: info for info in pool.models.info()}
    loaded = []
    for one in _list_models(pool):
        info, summary = infos[one.entry.name], pool.summary(one.entry)
        if info.state == "loaded" and summary is not None:
            idle = time.monotonic() - info.since if not info.n_uses else 0.0
            keep = pool.idle if one.entry.keep is None else one.entry.keep
            more = {
                "size": info.size,
                "expires_at": _format_time(keep - idle) if keep >= 0 else NEVER,
                "size_vram": 0,
                "context_length": summary.model["meta"]["n_ctx"],
            }
            loaded.append((one, more))
    return await work.run(work.Work.LONG, _write_loaded, loaded)


def _write_loaded(loaded: list[tuple[ListedModel, dict[str, Any]]]) -> Response:
    known = [(one, more, read_facts(one.path)) for one, more in loaded]
    found = [_describe(one, facts) | more for one, more, facts in known if facts is not None]
    return as_long_json({"models": found})


def _format_time(seconds: float) -> str:
    found = datetime.now(timezone.utc) + timedelta(seconds=min(max(seconds, 0.0), 1e9))
    return found.isoformat().replace("+00:00", "Z")


def read_name(body: Body) -> str:
    """Return the model's name in a request, which older clients send as `name`. HTTPError if it is
    missing."""
    found = text(body, "model") or text(body, "name")
    if not found:
        raise invalid("model is required")
    return found


async def show(request: Request, pool: ModelPool) -> Response:
    """Return the facts about a model, without loading it; `verbose` adds lists."""
    body = await read_object(request)
    name = read_name(body)
    entry = pool.find_entry(name) if pool.several else pool.single_entry
    one = next((one for one in _list_models(pool) if one.entry is entry), None)
    if one is None:
        raise UnknownModel(name)
    return await work.read(request, _write_model, one, bool(body.get("verbose")))


def _write_model(one: ListedModel, verbose: bool) -> Response:
    facts = read_facts(one.path)
    if facts is None:
        raise UnknownModel(one.name)
    info, vision = dict(facts.metadata), ["vision"] if one.entry.sees else []
    info |= {"general.parameter_count": facts.n_params}
    recipe = one.entry.recipe
    parameters = [*_parameters(recipe)]
    template, system = recipe.get("template") or facts.template, recipe.get("system", "")
    found: dict[str, Any] = {
        "modelfile": _modelfile(one, parameters),
        "parameters": "\n".join(parameters),
        "template": template,
        **({"system": system} if system else {}),
        **({"messages": recipe["messages"]} if recipe.get("messages") else {}),
        "details": _details(facts),
        "model_info": info,
        "capabilities": [*_capabilities(facts, recipe.get("template")), *vision],
        "modified_at": facts.change_time,
    }
    if parent := recipe.get("from"):
        found["details"]["parent_model"] = with_tag(parent)
    if isinstance(license := recipe.get("license") or info.get("general.license"), str):
        found["license"] = license
    if verbose:
        metadata, found["tensors"] = read_all(one.path)
        found["model_info"] = info | metadata
    return as_long_json(found)


def _capabilities(facts: FileFacts, template: str | None) -> tuple[str, ...]:
    if not template:
        return facts.capabilities
    return list_capabilities(facts.arch, facts.metadata, template_source(template))


def _parameters(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a created model's parameters."""
    for name, value in recipe.get("parameters", {}).items():
        for one in value if isinstance(value, list) else [value]:
            yield f"{name:<30} {json.dumps(one, ensure_ascii=False)}"


def _modelfile(one: ListedModel, parameters: list[str]) -> str:
    recipe = one.entry.recipe
    lines = [f"FROM {with_tag(recipe.get('from') or one.name)}"]
    given = [name for name in ("template", "system") if recipe.get(name)]
    lines += [f'{name.upper()} """{recipe[name]}"""' for name in given]
    lines += [f"ADAPTER {digest}" for digest in recipe.get("adapters", ())]
    lines += [f"PARAMETER {line}" for line in parameters]
    return "\n".join([*lines, ""])
