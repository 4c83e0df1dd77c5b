"""The fields of chat requests: the document has the declarations of the readers."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.routes import ollama
from llama_py_server.schema import (
    chat,
    chat_messages,
    completion,
    from_anthropic,
    from_ollama,
    from_responses,
)
from llama_py_server.schema.constraints import select
from llama_py_server.schema.fields import RequestField
from tests.server.served import ASK

OLLAMA = {**from_ollama.CHAT, **from_ollama.GENERATE, **from_ollama.EMBED, **from_ollama.EMBEDDINGS}
BY_PATH: dict[str, Mapping[str, Any]] = {
    "/v1/chat/completions": chat.FIELDS,
    "/apply-template": chat.FIELDS,
    "/v1/responses": from_responses.FIELDS,
    "/v1/responses/input_tokens": from_responses.FIELDS,
    "/v1/messages": from_anthropic.FIELDS,
    "/v1/messages/count_tokens": from_anthropic.FIELDS,
    "/api/chat": from_ollama.CHAT,
    "/api/generate": from_ollama.GENERATE,
}
READERS = {"text", "value", "inner", "objects", "_string"}  # of a field of a body


def properties(client: TestClient, path: str) -> dict[str, Any]:
    one = client.get("/openapi.json").json()["paths"][path]["post"]
    found: dict[str, Any] = one["requestBody"]["content"]["application/json"]["schema"]
    return dict(found["properties"])


@pytest.mark.parametrize("path", BY_PATH)
def test_the_document_has_the_declared_fields(client: TestClient, path: str) -> None:
    found, declared = properties(client, path), BY_PATH[path]
    assert found.keys() == {"model", *declared}
    for name, one in declared.items():
        schema = one.schema if isinstance(one, RequestField) else one
        if "image_url" not in str(schema) and schema:  # this model takes no images
            assert found[name] in (schema, {"anyOf": [schema, {"type": "null"}]}), name


def names_read(module: ModuleType) -> Iterator[str]:
    """The constant names of the fields that a module reads from `body`."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        found: list[ast.expr] = []
        match node:
            case ast.Call(ast.Name(name), [ast.Name("body"), one, *_]) if name in READERS:
                found = [one]
            case ast.Call(ast.Attribute(ast.Name("body"), "get"), [one, *_]):
                found = [one]
            case ast.Subscript(ast.Name("body"), one):
                found = [one]
            case ast.Compare(one, [ast.In() | ast.NotIn()], [ast.Name("body")]):
                found = [one]
        yield from (one.value for one in found if isinstance(one, ast.Constant))


@pytest.mark.parametrize(
    ("module", "fields", "least"),
    [
        (completion, completion.FIELDS, 1),
        (chat, chat.FIELDS, 15),
        (chat_messages, chat.FIELDS, 1),
        (from_responses, from_responses.FIELDS, 8),
        (from_anthropic, from_anthropic.FIELDS, 8),
        (from_ollama, OLLAMA, 11),
        (ollama, OLLAMA, 10),
    ],
)
def test_readers_read_declared_fields(
    module: ModuleType, fields: Mapping[str, Any], least: int
) -> None:
    names = {*names_read(module)}
    assert len(names) >= least and names <= fields.keys()


def test_other_fields_do_not_reach_a_reader(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"messages": ASK, "add_generation_prompt": False}
    default = client.post("/apply-template", json={"messages": ASK}).json()
    assert client.post("/apply-template", json=body).json() != default
    monkeypatch.delitem(chat.FIELDS, "add_generation_prompt")  # type: ignore[arg-type]
    assert client.post("/apply-template", json=body).json() == default
    unknown = {"a": 1, "b": 2, "guided_something": 3}  # looks like a constraint: refused later
    assert select(unknown, {"b"}) == {"b": 2, "guided_something": 3}


def example(schema: Mapping[str, Any]) -> Any:
    """A value of a schema."""
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema["type"] == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    number = max(0, schema.get("minimum", 0))
    return {"boolean": True, "string": "a", "object": {}, "null": None}.get(schema["type"], number)


LEAST: dict[str, dict[str, Any]] = {
    "/apply-template": {"messages": ASK, "logprobs": True, "add_generation_prompt": False},
    "/v1/responses/input_tokens": {"input": "a", "add_generation_prompt": False, "logprobs": True},
    "/v1/messages/count_tokens": {"messages": ASK},
    "/completion": {"prompt": "a", "n_predict": 1},
}


@pytest.mark.parametrize("path", LEAST)
def test_a_value_of_the_declared_type_is_accepted(client: TestClient, path: str) -> None:
    for name, schema in properties(client, path).items():
        if schema and name not in ("messages", "prompt", "stream"):
            body = {**LEAST[path], name: example(schema)}
            found = client.post(path, json=body)
            assert found.status_code == 200, (name, body[name], found.text)
