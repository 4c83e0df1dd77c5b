"""Routes of text-generation-inference."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.models.state import ModelState
from llama_py_server.stream.replies import running
from tests.server.served import events, leave, until
from tests.serving.engines import held

PROMPT = "ROMEO:"
ENDLESS = {"type": "regex", "value": "[a-z ]{1000}"}


def body(stream: bool | None = None, **parameters: Any) -> dict[str, Any]:
    found = {"inputs": PROMPT, "parameters": {"max_new_tokens": 8, **parameters}}
    return found if stream is None else {**found, "stream": stream}


def generated(client: TestClient, **parameters: Any) -> dict[str, Any]:
    found = client.post("/generate", json=body(**parameters))
    assert found.status_code == 200, found.text
    answer: dict[str, Any] = found.json()
    return answer


def streamed(client: TestClient, path: str, asked: Any) -> list[dict[str, Any]]:
    found = client.post(path, json=asked)
    assert found.status_code == 200 and "event-stream" in found.headers["content-type"]
    return [data for _, data in events(found.text)]


def wanted_text(client: TestClient, **more: Any) -> str:
    asked = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, **more}
    return str(client.post("/completion", json=asked).json()["content"])


def test_texts_are_those_of_completions(client: TestClient) -> None:
    text = wanted_text(client)
    assert generated(client) == {"generated_text": text}
    assert client.post("/", json=body(False)).json() == [{"generated_text": text}]
    assert generated(client, return_full_text=True)["generated_text"] == PROMPT + text
    stop = text.strip()[:4]
    cut = generated(client, stop=[stop], details=True)
    assert cut["generated_text"] == text.partition(stop)[0]
    assert cut["details"]["finish_reason"] == "stop_sequence"


def test_details(client: TestClient, state: ModelState) -> None:
    found = generated(client, details=True, decoder_input_details=True, top_n_tokens=2)
    details, ids = found["details"], state.tokenizer.tokenize(PROMPT)
    assert (details["finish_reason"], details["generated_tokens"]) == ("length", 8)
    assert "".join(one["text"] for one in details["tokens"]) == found["generated_text"]
    assert all(one["logprob"] <= 0 and not one["special"] for one in details["tokens"])
    assert [one["id"] for one in details["prefill"]] == ids
    assert details["prefill"][0]["logprob"] is None and details["prefill"][1]["logprob"] < 0
    for one, top in zip(details["tokens"], details["top_tokens"], strict=True):
        assert len(top) == 2 and top[0]["id"] == one["id"]


@pytest.mark.parametrize("path", ["/generate_stream", "/"])
def test_streams(client: TestClient, state: ModelState, path: str) -> None:
    asked = body(True, details=True, top_n_tokens=1)
    found = streamed(client, path, asked)
    text = wanted_text(client)
    assert [one["index"] for one in found] == [*range(1, 9)]
    assert "".join(one["token"]["text"] for one in found) == found[-1]["generated_text"] == text
    assert all(one["generated_text"] is one["details"] is None for one in found[:-1])
    assert found[-1]["details"] == {
        "finish_reason": "length",
        "generated_tokens": 8,
        "seed": None,
        "input_length": len(state.tokenizer.tokenize(PROMPT)),
    }
    assert all(one["top_tokens"][0]["id"] == one["token"]["id"] for one in found)


def test_the_end_token_is_the_last_event(client: TestClient) -> None:
    grammar = {"type": "regex", "value": "[0-9]{3}"}
    asked = body(True, temperature=0.5, seed=1, grammar=grammar)
    *before, last = streamed(client, "/generate_stream", asked)
    assert last["details"]["finish_reason"] == "eos_token" and last["details"]["seed"] == 1
    assert last["token"]["special"] and last["token"]["text"] == ""
    assert "".join(one["token"]["text"] for one in before) == last["generated_text"]


def test_sampling_begins_with_a_parameter(client: TestClient) -> None:
    text = wanted_text(client)
    for same in ({}, {"temperature": 1.0}, {"top_k": 0}, {"do_sample": False}):
        assert generated(client, **same)["generated_text"] == text
    sampled = {generated(client, temperature=3.0, seed=s)["generated_text"] for s in range(4)}
    assert len(sampled) > 1
    chosen = {generated(client, do_sample=True, seed=7)["generated_text"] for _ in range(2)}
    assert len(chosen) == 1


def test_prompts_are_cut_at_the_left(client: TestClient, state: ModelState) -> None:
    found = generated(client, truncate=2, decoder_input_details=True)["details"]["prefill"]
    assert [one["id"] for one in found] == state.tokenizer.tokenize(PROMPT)[-2:]


def test_grammars(client: TestClient) -> None:
    grammar = {"type": "regex", "value": "[0-9]{3}"}
    assert generated(client, grammar=grammar)["generated_text"].isdecimal()
    schema = {"type": "json", "value": {"enum": [7]}}
    assert generated(client, grammar=schema)["generated_text"].strip() == "7"


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("temperature", 0),
        ("temperature", "x"),
        ("top_p", 2),
        ("top_k", -1),
        ("max_new_tokens", 0),
        ("repetition_penalty", 0),
        ("best_of", 2),
        ("watermark", True),
        ("adapter_id", "x"),
        ("stop", 5),
        ("seed", -1),
        ("seed", 2**64),
        ("truncate", 0),
        ("details", "x"),
        ("top_n_tokens", 6),
        ("grammar", {"type": "x"}),
    ],
)
def test_wrong_parameters(client: TestClient, name: str, wrong: Any) -> None:
    for path in ("/generate", "/generate_stream", "/"):
        found = client.post(path, json=body(**{name: wrong}))
        assert found.status_code == 422, found.text
        error = found.json()
        assert error["error_type"] == "validation" and name in error["error"]


@pytest.mark.parametrize(
    "asked", [{}, {"inputs": ""}, {"inputs": 5}, {"inputs": "a", "parameters": 5}]
)
def test_wrong_bodies(client: TestClient, asked: Any) -> None:
    for path in ("/generate", "/generate_stream", "/"):
        found = client.post(path, json=asked)
        assert found.status_code == 422 and found.json()["error_type"] == "validation"
    for path in ("/generate", "/"):
        found = client.post(path, content=b"[1")
        assert found.status_code == 422 and found.json()["error_type"] == "validation"


def test_long_prompts(client: TestClient, state: ModelState) -> None:
    found = client.post("/generate", json={"inputs": "a b " * 2 * state.engine.n_ctx})
    assert found.status_code == 422 and found.json()["error_type"] == "validation"


@pytest.mark.parametrize("path", ["/generate", "/generate_stream", "/"])
def test_a_response_ends_when_its_client_leaves(
    client: TestClient, state: ModelState, path: str
) -> None:
    asked = {"inputs": PROMPT, "parameters": {"max_new_tokens": 400, "grammar": ENDLESS}}
    before = state.engine.metrics().total.ended["cancelled"]

    def has_begun(sent: list[Any]) -> bool:
        return any(reply.tokens for reply in running(state).values())

    made: Any = client.app
    with held(state.engine, 9):
        asyncio.run(leave(made, path, json.dumps(asked).encode(), has_begun))
    until(lambda: state.engine.metrics().total.ended["cancelled"] > before)
    assert not running(state)


def test_info(client: TestClient, state: ModelState) -> None:
    found = client.get("/info").json()
    assert found["max_total_tokens"] == state.engine.n_ctx and found["model_id"] == "demo"
    assert found["model_pipeline_tag"] == "text-generation" and "model_type" not in found
