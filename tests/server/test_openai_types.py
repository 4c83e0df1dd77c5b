"""Responses and streams are valid by the types that the openai package publishes, strictly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.served import ASK, TOOL, events, served

CHAT: dict[str, dict[str, Any]] = {
    "text": {},
    "several": {"n": 2, "seed": 1},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "cut": {"max_tokens": 1},
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [7]}}}
    },
    "call": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 100},
}
TEXT: dict[str, dict[str, Any]] = {
    "text": {},
    "several": {"prompt": ["a", "b"], "n": 2},
    "logprobs": {"logprobs": 2},
    "echo": {"echo": True},
}
FUNCTION = {"type": "function", **TOOL["function"]}
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {},
    "logprobs": {"top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "cut": {"max_output_tokens": 2},
    "repeated": {"instructions": "Be brief.", "metadata": {"a": "b"}, "user": "u"},
    "schema": {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"enum": [7]}}}},
    "call": {"tools": [FUNCTION], "tool_choice": "required", "max_output_tokens": 100},
}


@pytest.fixture(scope="module")
def plain() -> Iterator[TestClient]:
    with served("--embeddings") as (client, _):
        yield client


def check(kind: Any, text: str) -> Any:
    """Validate JSON without conversions of its values."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json(text, strict=True)


def post(client: TestClient, path: str, body: Any) -> str:
    found = client.post(path, json=body)
    assert found.status_code == 200, found.text
    return str(found.text)


def stream(client: TestClient, path: str, body: Any) -> list[Any]:
    found = events(post(client, path, {**body, "stream": True}))
    return [data for _, data in found if data != "[DONE]"]


@pytest.mark.parametrize("name", CHAT)
def test_chat(calling: TestClient, plain: TestClient, name: str) -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    body = {"messages": ASK, "max_tokens": 8, **CHAT[name]}
    client = calling if name == "call" else plain
    whole = check(ChatCompletion, post(client, "/v1/chat/completions", body))
    assert len(whole.choices) == body.get("n", 1) and whole.usage
    streamed = stream(
        client, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}
    )
    chunks = [check(ChatCompletionChunk, json.dumps(one)) for one in streamed]
    assert chunks[-1].usage and any(chunk.choices for chunk in chunks)


@pytest.mark.parametrize("name", TEXT)
def test_completions(plain: TestClient, name: str) -> None:
    from openai.types import Completion

    body = {"prompt": "a", "max_tokens": 4, **TEXT[name]}
    assert check(Completion, post(plain, "/v1/completions", body)).choices
    for one in stream(plain, "/v1/completions", body):
        for choice in one["choices"]:  # OpenAI's streams have null, but their type has not
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        check(Completion, json.dumps(one))


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(calling: TestClient, plain: TestClient, name: str) -> None:
    from openai.types.responses import Response, ResponseStreamEvent

    client = calling if name == "call" else plain
    body = {"input": "Who are you?", "max_output_tokens": 8, **RESPONSES[name]}
    whole = check(Response, post(client, "/v1/responses", body))
    assert whole.output and whole.usage
    streamed = stream(client, "/v1/responses", body)
    kinds = [check(ResponseStreamEvent, json.dumps(one)).type for one in streamed]
    assert kinds[0] == "response.created" and kinds[-1] == f"response.{whole.status}"


def test_embeddings_and_models(plain: TestClient) -> None:
    from openai.pagination import SyncPage
    from openai.types import CreateEmbeddingResponse, Model

    body = {"input": ["a", "b"], "model": "m"}
    found = check(CreateEmbeddingResponse, post(plain, "/v1/embeddings", body))
    assert len(found.data) == 2
    assert check(SyncPage[Model], plain.get("/v1/models").text).data[0].id == "demo"
    assert check(Model, plain.get("/v1/models/demo").text).owned_by
