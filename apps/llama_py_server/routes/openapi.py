"""Route /openapi.json: the enabled routes of this server as an OpenAPI document."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ggml_py.machine.release import VERSION
from llama_py_server.routes.operation import Features, Operation
from llama_py_server.routes.operations import EVENTS, LINES, OPERATIONS
from llama_py_server.schema.chat_messages import IMAGE_PART
from llama_py_server.schema.fields import Fields, RequestField
from llama_py_server.schema.json_schemas import ANY, INTEGER, STRING, Schema
from llama_py_server.wire import work
from llama_py_server.wire.responses import as_long_json, as_ollama_error, as_tei_error, as_tgi_error

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool
    from llama_py_server.params import ServerParams
    from llama_py_server.wire.errors import HTTPError

PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")  # of a path
_NUMBERS = ("id_slot",)  # parameters of paths that are integers
_KEYS: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]


class ServedRoute(NamedTuple):
    """A served route: its handler, an object that has an operation; is_open: it needs no key."""

    method: str
    path: str
    handler: object
    write_error: Callable[[HTTPError], Response]
    is_open: bool


OPERATION = Operation(tag="server", returns=ANY)  # of this document


async def get(request: Request, pool: ModelPool) -> Response:
    """Return the OpenAPI document of this server."""
    served, has_keys = request.app.state.served, request.app.state.has_keys
    features = find_features(pool)
    return await work.read(
        request, lambda: as_long_json(document(served, features, has_keys)), kind=work.Work.WRITE
    )


def find_features(pool: ModelPool) -> Features:
    """Return the features of a server."""
    if pool.several:
        return Features()
    lease = pool.models.peek(pool.single_entry.name)
    if lease is None:  # it sleeps
        summary = pool.summary(pool.single_entry)
        return Features(several=False) if summary is None else _features(summary.options.server)
    try:
        state = lease.served.state
        special = state.tokenizer.special_ids
        fills = all(name in special for name in ("fim_pre", "fim_suf", "fim_mid"))
        return _features(state.params, fills, state.sees)
    finally:
        lease.end()


def _features(p: ServerParams, infill: bool = True, images: bool = True) -> Features:
    return Features(
        embedding=p.embedding,
        reranking=p.reranking,
        infill=infill,
        slots=p.slots,
        slot_files=bool(p.slot_save_path),
        metrics=p.metrics,
        props=p.props,
        images=images,
        several=False,
    )


def document(served: Iterable[ServedRoute], features: Features, has_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes that these features enable."""
    paths: dict[str, dict[str, Any]] = {}
    for one in served:
        operation = OPERATIONS.get(one.handler, OPERATION)
        if isinstance(one.handler, Operation):
            operation = one.handler
        if operation.is_on(features):
            path = PARAMETER.sub(r"{\1}", one.path)
            about = _describe(one, operation, has_keys)
            about = about if features.images else _leave_out(about, IMAGE_PART)
            paths.setdefault(path, {})[one.method.lower()] = about
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "llama-py-server", "version": VERSION},
        "paths": paths,
        "components": {"schemas": _ERRORS},
    }
    if has_keys:
        found["security"] = _KEYS
        found["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return found


def _describe(one: ServedRoute, operation: Operation, has_keys: bool) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", PARAMETER.sub(r"\1", one.path)).strip("_") or "root"
    found: dict[str, Any] = {
        "operationId": f"{one.method.lower()}_{name}",
        "tags": [operation.tag],
        "summary": operation.summary or _summary(one),
        "parameters": [*_path_parameters(one.path), *_query_parameters(operation)],
        "responses": _responses(one, operation),
    }
    body = operation.body
    if operation.fields:
        body = _object(operation.fields, operation.required)
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if has_keys and one.is_open:
        found["security"] = []
    return found


def _leave_out(schema: Any, left_out: Schema) -> Any:
    """Return a schema that lacks an alternative."""
    if isinstance(schema, Mapping):
        return {name: _leave_out(one, left_out) for name, one in schema.items()}
    if not isinstance(schema, list):
        return schema
    return [_leave_out(one, left_out) for one in schema if one is not left_out]


def _summary(one: ServedRoute) -> str:
    """Return the first sentence of a handler's docstring."""
    text = inspect.getdoc(one.handler) if callable(one.handler) else None
    return re.split(r"(?<=[.;])\s", " ".join((text or one.path).split()))[0].rstrip(".;")


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": INTEGER if name in _NUMBERS else STRING,
        }
        for name in PARAMETER.findall(path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": name in operation.needed, "schema": schema}
        for name, schema in operation.query.items()
    ]


def _object(fields: Fields, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object; null equals an absent field."""
    properties = {}
    for name, one in fields.items():
        if isinstance(one, RequestField):
            schema = one.schema
        else:
            schema = _object(one["fields"]) if "fields" in one else one
        properties[name] = schema if name in required or not schema else _nullable(schema)
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": [*required]} if required else found


def _nullable(schema: Schema) -> Schema:
    return schema if schema == {"type": "null"} else {"anyOf": [schema, {"type": "null"}]}


def _responses(one: ServedRoute, operation: Operation) -> dict[str, Any]:
    names = ["Error"]  # also of checks before the handler
    if operation.hugging_face or one.write_error in (as_tei_error, as_tgi_error):
        names.append("HuggingFaceError")
    elif one.write_error is as_ollama_error:
        names.append("OllamaError")
    failed = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}
    found: dict[str, Any] = {
        "default": {"description": "error", "content": {"application/json": {"schema": failed}}}
    }
    if operation.returns is None:
        return {str(operation.status or 204): {"description": "no content"}, **found}
    # tools take `schema` of events as a schema of the whole stream
    key = "x-event" if operation.media == EVENTS else "schema"
    content = {operation.media: {key: operation.returns}}
    if operation.media == LINES:
        content["application/json"] = {}
    if operation.streams:
        content[EVENTS] = {}
    return {"200": {"description": "response", "content": content}, **found}


_ERRORS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "type"],
                "properties": {"code": INTEGER, "message": STRING, "type": STRING},
            }
        },
    },
    "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": STRING}},
    "HuggingFaceError": {
        "type": "object",
        "required": ["error", "error_type"],
        "properties": {"error": STRING, "error_type": STRING},
    },
}
