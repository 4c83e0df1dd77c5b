"""Each published field of OpenAI's requests is honored, refused, or listed as without effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.served import ASK, served

DOCS = Path(__file__).parents[2] / "docs" / "server.md"
CHAT, TEXT, RESPONSES, EMBEDDINGS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings",
)  # fmt: skip
LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"messages": ASK, "max_tokens": 4}, TEXT: {"prompt": "ROMEO:", "max_tokens": 4},
    RESPONSES: {"input": "Who?", "max_output_tokens": 4}, EMBEDDINGS: {"input": "a text"},
}  # fmt: skip
# Fields of *CreateParams of openai 3.57.
PUBLISHED = {
    CHAT: "audio frequency_penalty function_call functions logit_bias logprobs"
    " max_completion_tokens max_tokens messages metadata modalities model moderation n"
    " parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier"
    " stop store stream stream_options temperature tool_choice tools top_logprobs top_p user"
    " verbosity web_search_options",
    TEXT: "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty"
    " prompt seed stop stream stream_options suffix temperature top_p user",
    RESPONSES: "access_programs background background_options context_management conversation"
    " image include input instructions max_output_tokens max_tool_calls metadata model moderation"
    " parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options"
    " prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options"
    " temperature text tool_choice tools top_logprobs top_p truncation user",
    EMBEDDINGS: "dimensions encoding_format input model user",
}
HONORED = {
    CHAT: "frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages model n"
    " parallel_tool_calls presence_penalty reasoning_effort response_format seed stop stream"
    " stream_options temperature tool_choice tools top_logprobs top_p",
    TEXT: "echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt"
    " seed stop stream stream_options temperature top_p",
    RESPONSES: "include input instructions max_output_tokens model parallel_tool_calls reasoning"
    " stream stream_options temperature text tool_choice tools top_logprobs top_p",
    EMBEDDINGS: "dimensions encoding_format input model",
}
GIVEN: dict[str, Any] = {
    "modalities": ["text", "audio"], "functions": [{"name": "f"}], "function_call": {"name": "f"},
    "background": True, "best_of": 3, "store": True, "truncation": "auto",
}  # fmt: skip


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


@pytest.mark.parametrize("path", [CHAT, TEXT, RESPONSES])
def test_refused_and_without_effect(client: TestClient, path: str) -> None:
    refused, without = listed(path)
    for name in refused:
        response = client.post(path, json={**LEAST[path], name: GIVEN.get(name, "x")})
        assert response.status_code == 400 and name in response.json()["error"]["message"], name
    given = {name: GIVEN.get(name, "x") for name in without}
    with_all, plain = (
        client.post(path, json={**LEAST[path], **more}).json() for more in (given, {})
    )
    key = "output" if path == RESPONSES else "choices"
    assert text_of(with_all[key]) == text_of(plain[key]) != []


def text_of(found: Any) -> list[str]:
    """All texts in a response."""
    if isinstance(found, dict):
        return [t for k, v in found.items() for t in ([v] if k in _TEXTS and isinstance(v, str)
                                                     else text_of(v))]  # fmt: skip
    return [t for one in found for t in text_of(one)] if isinstance(found, list) else []


_TEXTS = ("text", "content")


@pytest.mark.parametrize(
    "asked",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": {"enum": [7]}}}},
        {"output_format": {"type": "json_schema", "schema": {"enum": [7]}}}, {"regex": "7"},
        {"guided_json": {"enum": [7]}},
    ],
)  # fmt: skip
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
