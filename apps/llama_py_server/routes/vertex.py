"""Routes for Google's Vertex AI, enabled by its environment variables (server-http.cpp):

    AIP_MODE=PREDICTION     enables the routes;  AIP_HTTP_PORT  port of the server
    AIP_HEALTH_ROUTE        another path of /health
    AIP_PREDICT_ROUTE       requests of any kind, several at once (/predict)

A prediction is `{"instances": [{"@requestFormat": "chatCompletions", ...}, ...]}`. Each instance
gets the response of the path with that name, `/v1/chat/completions`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.routes.inner import Handle, ask
from llama_py_server.wire.body import read_object
from llama_py_server.wire.clients import unless_gone
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import GONE, as_long_json
from llama_py_server.wire.work import Work, run

Key = tuple[str, str]
MOST = 128  # instances of a request


def is_on() -> bool:
    return os.environ.get("AIP_MODE") == "PREDICTION"


def port(given: int) -> int:
    """Return the port of AIP_HTTP_PORT, else the given one."""
    return int(os.environ.get("AIP_HTTP_PORT", "8080")) if is_on() else given


def _path(name: str, default: str) -> str:
    path = os.environ.get(name, default)
    return path if not path or path.startswith("/") else f"/{path}"


def health_paths() -> list[str]:
    path = _path("AIP_HEALTH_ROUTE", "") if is_on() else ""
    return [path] if path else []


def predict_paths() -> list[str]:
    """Return the path of predictions, or an empty list if Vertex AI is off."""
    return [_path("AIP_PREDICT_ROUTE", "/predict")] if is_on() else []


def handles(known: Mapping[Key, Handle], told: Callable[[Handle], Handle]) -> dict[Key, Handle]:
    """Return additional routes, if Vertex AI is on. HTTPError for a path in use."""
    if not is_on():
        return {}
    [predict] = predict_paths()
    if ("POST", predict) in known:
        raise invalid(f"AIP_PREDICT_ROUTE={predict} is already a path of this server; use another")
    by_name: dict[str, Handle] = {}
    for (method, path), handle in known.items():
        if method == "POST" and "{" not in path:
            by_name.setdefault(route_name(path), handle)
            by_name[path] = handle
    found: dict[Key, Handle] = {("POST", predict): told(_predict(by_name))}
    return found | {("GET", path): known["GET", "/health"] for path in health_paths()}


def route_name(path: str) -> str:
    """Return the name of a path: chatCompletions for `/v1/chat/completions`."""
    first, *others = re.split("[/_-]", path.removeprefix("/v1").strip("/"))
    return first + "".join(one[:1].upper() + one[1:] for one in others)


def _predict(by_name: Mapping[str, Handle]) -> Handle:
    async def handle(request: Request) -> Response:
        instances = (await read_object(request)).get("instances")
        if not isinstance(instances, list):
            raise invalid("request body must include an array field named instances")
        if len(instances) > MOST:
            raise invalid(f"instances array exceeds maximum size of {MOST}")
        asked = asyncio.gather(*(_one(request, by_name, one) for one in instances))
        found = await unless_gone(request, asked)
        if found is None:
            return GONE
        return await run(Work.WRITE, as_long_json, {"predictions": found})

    return handle


async def _one(request: Request, by_name: Mapping[str, Handle], instance: Any) -> Any:
    """Return the response to an instance, or its error."""
    if not isinstance(instance, dict):
        return _error("each instance must be a JSON object")
    name = instance.get("@requestFormat")
    if not isinstance(name, str):
        return _error("each instance must include a string @requestFormat")
    if name not in by_name:
        return _error(f"no handler registered for @requestFormat: {name}")
    body = {key: value for key, value in instance.items() if key != "@requestFormat"}
    if "stream" in body:
        body["stream"] = False
    return await ask(request, by_name[name], body)


def _error(message: str) -> dict[str, Any]:
    return {"error": HTTPError("invalid_request_error", message).body}
