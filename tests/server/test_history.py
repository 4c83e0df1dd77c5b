"""Earlier messages are taken as clients send them, in the three interfaces."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.schema import from_anthropic, from_responses
from llama_py_server.wire.errors import HTTPError

ASK = {"role": "user", "content": "Q"}
DOCUMENT = {
    "type": "document",
    "title": "T",
    "context": "C",
    "source": {"type": "text", "media_type": "text/plain", "data": "DATA"},
}


def anthropic(*messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = from_anthropic.chat_body({"messages": [*messages], **more})[
        "messages"
    ]
    return found


def test_results_stand_behind_their_calls() -> None:
    """Whatever else the message has: some clients put reminders before or behind them."""
    use = {"type": "tool_use", "id": "t", "name": "f", "input": '{"cut'}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [DOCUMENT]}
    said = {"role": "user", "content": [{"type": "text", "text": "Be quick."}, result]}
    _, call, told, reminder = anthropic(ASK, {"role": "assistant", "content": [use]}, said)
    assert call["tool_calls"][0]["function"]["arguments"] == '{"cut'
    assert told == {"role": "tool", "tool_call_id": "t", "content": "T\nC\nDATA"}
    assert reminder["content"] == [{"type": "text", "text": "Be quick."}]


def test_blocks_within_blocks() -> None:
    inner = {
        "type": "search_result",
        "title": "S",
        "source": "u",
        "content": [{"type": "text", "text": "FOUND"}],
    }
    block = {"type": "document", "source": {"type": "content", "content": [inner]}}
    (message,) = anthropic({"role": "user", "content": [block]})
    assert [part["text"] for part in message["content"]] == ["S\nu", "FOUND"]
    for bad, says in (
        ({"type": "frobnicate"}, "'frobnicate' is not supported; send its text"),
        ({"type": "document", "source": {"type": "base64"}}, "document source of type 'base64'"),
        ({"type": "image", "source": {"type": "file"}}, "image source of type 'file'"),
        ({"type": "text"}, "'text' of a 'text' block must be a string"),
    ):
        for block in (bad, {"type": "tool_result", "tool_use_id": "t", "content": [bad]}):
            with pytest.raises(HTTPError, match=says):
                anthropic({"role": "user", "content": [block]})
    with pytest.raises(HTTPError, match="'frobnicate'"):
        anthropic(ASK, system=[{"type": "frobnicate"}])


def test_items_of_responses() -> None:
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A"}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "any text"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "B"}]},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
    ]
    answer, result = from_responses.chat_body({"input": items})["messages"]
    assert answer["reasoning_content"] == "AB" and result["content"] == "done"
    assert answer["tool_calls"][0]["function"] == {"name": "f", "arguments": "any text"}
    with pytest.raises(HTTPError, match="'item': 'web_search_call'"):
        from_responses.chat_body({"input": [{"type": "web_search_call"}]})


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({}, ""),
        ({"content": None}, ""),
        ({"refusal": "I will not."}, "I will not."),
        ({"function_call": {"name": "f", "arguments": "{cut"}}, "{cut"),
        (
            {"tool_calls": [{"type": "custom", "id": "c", "custom": {"name": "f", "input": "IN"}}]},
            "IN",
        ),
    ],
)
def test_answers_of_chats(client: TestClient, answer: dict[str, Any], shown: str) -> None:
    messages = [ASK, {"role": "assistant", **answer}, {"role": "user", "content": "Go on."}]
    found = client.post("/apply-template", json={"messages": messages})
    assert found.status_code == 200 and shown in found.json()["prompt"]


def test_two_answers_at_the_end(client: TestClient) -> None:
    """The last one continues."""
    messages = [ASK, *({"role": "assistant", "content": text} for text in ("One.", "Two"))]
    prompt = client.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert "One." in prompt and prompt.endswith("Two")


def test_system_messages_amid_a_conversation(client: TestClient) -> None:
    system = {"role": "system", "content": "Be brief."}
    body = {"model": "m", "max_tokens": 2, "messages": [ASK, system, ASK], "system": "A"}
    assert client.post("/v1/messages", json=body).status_code == 200
    body = {"input": [system | {"role": "developer"}, ASK, system], "instructions": "A"}
    assert client.post("/v1/responses", json=body | {"max_output_tokens": 2}).status_code == 200
