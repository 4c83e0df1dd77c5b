"""What clients are told of an answer that has thoughts, text and calls, wherever it is cut."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from llama_py.chat import ChatTemplate
from llama_py.chat.tools import format_of
from llama_py.params import SamplingParams
from llama_py.serving import Event, Timings
from llama_py_server.answer import Answer
from llama_py_server.results.anthropic import Anthropic
from llama_py_server.results.openai_chat import Chat
from llama_py_server.results.responses import Responses
from llama_py_server.task import Task
from tests.server.served import ASK, TOOL, template

TEXT = (
    "<think>\nIt may rain.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"place": "here"}}\n</tool_call>'
)
CALL = {"place": "here"}


def answered(writer: Any, size: int) -> tuple[Answer, list[Any]]:
    """The text in pieces of so many characters: the answer, and the events of a stream."""
    form = format_of(ChatTemplate(template("Qwen-Qwen3-0.6B")), ASK, tools=[TOOL])
    answering: Any = SimpleNamespace(reader=lambda: form.parser(lambda: "id"))
    task = Task(sampling=SamplingParams(), stream=True, answering=answering)
    answer, found = Answer(0, [1, 2, 3], task), []
    pieces = [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    for n, piece in enumerate(pieces, 1):
        reason = "eos" if n == len(pieces) else None
        event = Event(Timings(n_prompt=3, n_gen=n), 0, piece, n, finish_reason=reason)
        found += writer.partial(answer, answer.take(event))
    return answer, [*found, *writer.final(answer)]


@pytest.fixture
def state() -> Any:
    return SimpleNamespace(name="m", build="b1", tokenizer=None)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_openai_chat(state: Any, size: int) -> None:
    answer, found = answered(Chat(state), size)
    deltas = [e.data["choices"][0]["delta"] for e in found]
    assert "".join(d.get("reasoning_content", "") for d in deltas).strip() == "It may rain."
    assert "".join(d.get("content") or "" for d in deltas).strip() == "I look."
    calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert [c["id"] for c in calls if "id" in c] == ["id"]
    arguments = "".join(c["function"].get("arguments", "") for c in calls)
    assert json.loads(arguments) == CALL
    assert found[-1].data["choices"][0]["finish_reason"] == "tool_calls"
    message = Chat(state).whole([answer])["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    assert message["reasoning_content"].strip() == "It may rain."


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_anthropic(state: Any, size: int) -> None:
    answer, found = answered(Anthropic(state), size)
    starts = [e.data for e in found if e.name == "content_block_start"]
    assert [s["index"] for s in starts] == [0, 1, 2]
    assert [s["content_block"]["type"] for s in starts] == ["thinking", "text", "tool_use"]
    stops = [e.data["index"] for e in found if e.name == "content_block_stop"]
    assert stops == [0, 1, 2]
    deltas = [e.data["delta"] for e in found if e.name == "content_block_delta"]
    assert json.loads("".join(d.get("partial_json", "") for d in deltas)) == CALL
    assert found[-2].data["delta"]["stop_reason"] == "tool_use"
    blocks = Anthropic(state).whole([answer])["content"]
    assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[2]["input"] == CALL and blocks[2]["id"] == "id"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_responses(state: Any, size: int) -> None:
    answer, found = answered(Responses(state), size)
    added = [e.data["item"]["type"] for e in found if e.name == "response.output_item.added"]
    done = [e.data["item"] for e in found if e.name == "response.output_item.done"]
    assert added == [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert json.loads(done[2]["arguments"]) == CALL
    assert found[-1].data["response"]["output"] == done
    whole = Responses(state).whole([answer])["output"]
    assert [item["type"] for item in whole] == added
