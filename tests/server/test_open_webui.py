"""Requests as Open WebUI 0.12.4 sends them to Ollama's API, and the fields that it reads.

Its modules `routers/ollama.py`, `utils/payload.py` and `retrieval/utils.py` are the source.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.served import ASK, TOOL, served

FEW = {"num_predict": 8, "temperature": 0}
USAGE = (
    "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
    "eval_duration",
)  # fmt: skip


def post(client: TestClient, path: str, body: Any) -> list[Any]:
    """Return the records of a response."""
    found = client.post(
        f"/api/{path}",
        content=json.dumps(body),
        headers={"Content-Type": "application/json", "Authorization": "Bearer "},
    )
    assert found.status_code == 200, found.text
    return [json.loads(line) for line in found.text.splitlines()]


def chat(client: TestClient, **body: Any) -> list[Any]:
    return post(client, "chat", {"model": "any", "messages": ASK, "stream": True, **body})


def test_connections(client: TestClient) -> None:
    """A connection is checked by its version; models are listed, and those in memory marked."""
    assert client.get("/api/version").json()["version"].count(".") >= 2  # compared as numbers
    [model] = client.get("/api/tags").json()["models"]
    assert model["model"] and model["name"] and model["details"]["family"]
    [loaded] = client.get("/api/ps").json()["models"]
    assert loaded["model"] == model["model"] and loaded["expires_at"]
    shown = client.post("/api/show", json={"model": model["model"]}).json()
    assert {"details", "model_info", "capabilities"} <= shown.keys()


def test_a_chat(client: TestClient) -> None:
    *parts, last = chat(client, options=FEW)
    assert "".join(one["message"]["content"] for one in parts)
    assert all(one["done"] is False and one["model"] == "any" for one in parts)
    assert last["done"] is True and last["done_reason"] == "length"
    assert all(isinstance(last[name], int) for name in USAGE)
    [whole] = chat(client, options=FEW, stream=False)
    assert whole["message"]["content"] == "".join(one["message"]["content"] for one in parts)


@pytest.mark.parametrize(
    "body",
    [
        {"keep_alive": -1},
        {"keep_alive": "5m", "think": False},
        {"system": "Be brief."},
        {"options": {**FEW, "stop": ["\n\n"], "num_ctx": 4096, "num_gpu": 9, "use_mmap": True}},
        {"options": {**FEW, "mirostat": 0, "repeat_last_n": 64, "num_thread": 2, "num_keep": 24}},
    ],
    ids=lambda body: ",".join(body),
)
def test_parameters_of_a_chat(client: TestClient, body: Any) -> None:
    assert chat(client, **{"options": FEW, **body})[-1]["done"] is True


def test_formats(client: TestClient) -> None:
    """Of a parameter: `json` or a schema; of `response_format`: the schema."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    options = {"num_predict": 200, "temperature": 0}
    [found] = chat(client, stream=False, format=schema, options=options)
    assert isinstance(json.loads(found["message"]["content"])["ok"], bool)


def test_tool_calls(calling: TestClient) -> None:
    """Calls are sent back with index, id and an object of arguments, and results with the id."""
    body = {"tools": [TOOL], "options": {"num_predict": 120, "temperature": 0}}
    records = chat(calling, **body, tool_choice="required")
    [call] = [one for record in records for one in record["message"].get("tool_calls", [])]
    assert isinstance(call["function"]["arguments"], dict)
    sent = {"index": call["function"]["index"], "id": "call_1", "function": call["function"]}
    said = {"role": "assistant", "thinking": "Weather.", "tool_calls": [sent], "content": ""}
    result = {"role": "tool", "content": "sun", "tool_call_id": "call_1"}
    assert chat(calling, **body, messages=[*ASK, said, result])[-1]["done"] is True


def test_titles_and_completions(client: TestClient) -> None:
    *_, last = post(client, "generate", {"model": "any", "prompt": "To be", "options": FEW})
    assert last["done"] is True and last["context"]


def test_embeddings_of_documents() -> None:
    with served("--embeddings") as (client, _):
        [found] = post(client, "embed", {"model": "any", "input": ["a", "b"], "truncate": True})
        [older] = post(client, "embeddings", {"model": "any", "prompt": "a"})
    assert len(found["embeddings"]) == 2
    assert len(older["embedding"]) == len(found["embeddings"][0])


def test_a_model_is_unloaded() -> None:
    with served() as (client, _):
        [found] = post(client, "generate", {"model": "any", "keep_alive": 0, "prompt": ""})
        assert found["done"] is True
        assert chat(client, options=FEW)[-1]["done"] is True  # it is loaded again, or stays


def test_pulls_and_errors(client: TestClient) -> None:
    """`insecure` is always sent; the error's text is shown."""
    body = {"model": "no-such-model", "insecure": True}
    found = client.post("/api/pull", json=body)
    assert found.status_code >= 400 and isinstance(found.json()["error"], str)
    found = client.request("DELETE", "/api/delete", json={"model": "no-such-model"})
    assert found.status_code >= 400 and isinstance(found.json()["error"], str)
