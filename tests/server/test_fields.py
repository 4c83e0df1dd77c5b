"""Each published field of OpenAI's requests is honored, refused, or listed as without effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.served import ASK, served

DOCS = Path(__file__).parents[2] / "docs" / "server.md"
CHAT, TEXT, RESPONSES, MESSAGES, EMBEDDINGS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
)
LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"messages": ASK, "max_tokens": 4},
    TEXT: {"prompt": "ROMEO:", "max_tokens": 4},
    RESPONSES: {"input": "Who?", "max_output_tokens": 4},
    MESSAGES: {"messages": ASK, "max_tokens": 4},
    EMBEDDINGS: {"input": "a text"},
}
# Fields of *CreateParams of openai 3.57; test_schemas.py has those of chats.
PUBLISHED = {
    TEXT: "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty"
    " prompt seed stop stream stream_options suffix temperature top_p user",
    EMBEDDINGS: "dimensions encoding_format input model user",
}
HONORED = {
    TEXT: "echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt"
    " seed stop stream stream_options temperature top_p",
    EMBEDDINGS: "dimensions encoding_format input model",
}
GIVEN: dict[str, Any] = {
    "modalities": ["text", "audio"],
    "tool_choice": {"type": "custom", "custom": {"name": "f"}},
    "background": True,
    "best_of": 3,
    "store": True,
    "truncation": "auto",
    "thinking": {"type": "x"},
}


def listed(path: str) -> tuple[set[str], set[str]]:
    """The fields that the docs call refused, and those without effect."""
    table = DOCS.read_text("utf-8").split("### Fields")[1].split("\n#")[0]
    (line,) = re.findall(rf"^\| `{path}` \| (.*) \|$", table, re.MULTILINE)
    refused, without = (set(re.findall(r"`(\w+)`", part)) for part in line.split("|"))
    return refused, without


@pytest.mark.parametrize("path", PUBLISHED)
def test_each_has_a_place(path: str) -> None:
    refused, without = listed(path)
    places = [set(HONORED[path].split()), refused, without]
    assert set.union(*places) == set(PUBLISHED[path].split())
    assert sum(map(len, places)) == len(set.union(*places))


@pytest.mark.parametrize("path", [CHAT, TEXT, RESPONSES, MESSAGES])
def test_refused_and_without_effect(client: TestClient, path: str) -> None:
    refused, without = listed(path)
    for name in refused:
        response = client.post(path, json={**LEAST[path], name: GIVEN.get(name, "x")})
        assert response.status_code == 400 and name in response.json()["error"]["message"], name
    given = {name: GIVEN.get(name, "x") for name in without}
    with_all, plain = (
        client.post(path, json={**LEAST[path], **more}).json() for more in (given, {})
    )
    key = {RESPONSES: "output", MESSAGES: "content"}.get(path, "choices")
    assert text_of(with_all[key]) == text_of(plain[key]) != []


def text_of(found: Any) -> list[str]:
    """All texts in a response."""
    if isinstance(found, dict):
        return [
            t
            for k, v in found.items()
            for t in ([v] if k in _TEXTS and isinstance(v, str) else text_of(v))
        ]
    return [t for one in found for t in text_of(one)] if isinstance(found, list) else []


_TEXTS = ("text", "content")


@pytest.mark.parametrize(
    "asked",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": {"enum": [7]}}}},
        {"output_format": {"type": "json_schema", "schema": {"enum": [7]}}},
        {"regex": "7"},
        {"guided_json": {"enum": [7]}},
    ],
)
def test_constraints_of_messages(client: TestClient, asked: dict[str, Any]) -> None:
    body = {"messages": ASK, "max_tokens": 32, **asked}
    text = client.post("/v1/messages", json=body).json()["content"][0]["text"].strip()
    assert text.removeprefix("```json").removesuffix("```").strip() == "7"


def test_user_of_embeddings() -> None:
    with served("--embeddings") as (client, _):
        one, other = (
            client.post(EMBEDDINGS, json={**LEAST[EMBEDDINGS], **more}).json()["data"]
            for more in ({"user": "x"}, {})
        )
        assert one == other


def test_an_integer_is_no_switch(client: TestClient) -> None:
    response = client.post(TEXT, json={**LEAST[TEXT], "max_tokens": True})
    assert response.status_code == 400 and "max_tokens" in response.json()["error"]["message"]
