"""What clients are told of an answer that has thoughts, text and calls, wherever it is cut."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from llama_py.chat import ChatTemplate
from llama_py.chat.tools import build_format
from llama_py.serving import Event, Request, Timings
from llama_py_server.schema.completion import Delivery
from llama_py_server.stream.reply import Reply
from llama_py_server.stream.writers.anthropic import AnthropicWriter
from llama_py_server.stream.writers.openai_chat import ChatWriter
from llama_py_server.stream.writers.responses import ResponsesWriter
from tests.server.served import ASK, TOOL, template

TEXT = (
    "<think>\nIt may rain.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"place": "here"}}\n</tool_call>'
)
CALL = {"place": "here"}


def answered(writer: Any, size: int, text: str = TEXT) -> tuple[Reply, list[Any]]:
    """The text in pieces of so many characters: the answer, and the events of a stream. A text
    that is not whole is one that was cut."""
    form = build_format(ChatTemplate(template("Qwen-Qwen3-0.6B")), ASK, tools=[TOOL])
    chat: Any = SimpleNamespace(reader=lambda: form.parser(lambda: "id"), format=form)
    answer = Reply(0, Request(prompt=[1, 2, 3], chat=chat), Delivery(stream=True))
    found: list[Any] = []
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    for n, piece in enumerate(pieces, 1):
        reason: Any = ("eos" if text == TEXT else "length") if n == len(pieces) else None
        event = Event(Timings(n_prompt=3, n_gen=n), 0, piece, n, finish_reason=reason)
        found += writer.partial(answer, answer.take(event))
    return answer, [*found, *writer.final(answer)]


@pytest.fixture
def state() -> Any:
    template = SimpleNamespace(caps=SimpleNamespace(parallel_tool_calls=False))
    options = SimpleNamespace(generate=SimpleNamespace(context_shift=False))
    return SimpleNamespace(name="m", build="b1", tokenizer=None, template=template, options=options)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_openai_chat(state: Any, size: int) -> None:
    answer, found = answered(ChatWriter(state), size)
    deltas = [e.data["choices"][0]["delta"] for e in found]
    assert "".join(d.get("reasoning_content", "") for d in deltas).strip() == "It may rain."
    assert "".join(d.get("content") or "" for d in deltas).strip() == "I look."
    calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert [c["id"] for c in calls if "id" in c] == ["id"]
    arguments = "".join(c["function"].get("arguments", "") for c in calls)
    assert json.loads(arguments) == CALL
    assert found[-1].data["choices"][0]["finish_reason"] == "tool_calls"
    message = ChatWriter(state).write_body([answer])["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    assert message["reasoning_content"].strip() == "It may rain."


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_anthropic(state: Any, size: int) -> None:
    answer, found = answered(AnthropicWriter(state), size)
    starts = [e.data for e in found if e.name == "content_block_start"]
    assert [s["index"] for s in starts] == [0, 1, 2]
    assert [s["content_block"]["type"] for s in starts] == ["thinking", "text", "tool_use"]
    stops = [e.data["index"] for e in found if e.name == "content_block_stop"]
    assert stops == [0, 1, 2]
    deltas = [e.data["delta"] for e in found if e.name == "content_block_delta"]
    assert json.loads("".join(d.get("partial_json", "") for d in deltas)) == CALL
    assert found[-2].data["delta"]["stop_reason"] == "tool_use"
    blocks = AnthropicWriter(state).write_body([answer])["content"]
    assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[2]["input"] == CALL and blocks[2]["id"] == "id"


def test_anthropic_calls_that_were_cut(state: Any) -> None:
    """Both forms of an answer have what the client's package reads from the stream."""
    from jiter import from_json

    given = r'{"place": "a, \"{b", "n": [12, -1.5e3, ["c"], {}], "o": {"p": true, "q": null}}'
    text = f'<tool_call>\n{{"name": "weather", "arguments": {given}}}'
    inputs = []
    for n in range(len(text) - len(given), len(text)):
        answer, found = answered(AnthropicWriter(state), 1000, text[:n])
        deltas = [e.data["delta"] for e in found if e.name == "content_block_delta"]
        sent = "".join(delta["partial_json"] for delta in deltas)
        whole = AnthropicWriter(state).write_body([answer])
        assert found[-2].data["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"
        (block,) = whole["content"]
        assert block["input"] == (from_json(sent.encode(), partial_mode=True) if sent else {}), sent
        inputs += [block["input"]] if block["input"] not in inputs else []
    assert inputs[-1] == json.loads(given) and len(inputs) > 10


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_responses(state: Any, size: int) -> None:
    answer, found = answered(ResponsesWriter(state, {}), size)
    added = [e.data["item"]["type"] for e in found if e.name == "response.output_item.added"]
    done = [e.data["item"] for e in found if e.name == "response.output_item.done"]
    assert added == [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert json.loads(done[2]["arguments"]) == CALL
    assert found[-1].data["response"]["output"] == done
    assert {item["status"] for item in done} == {"completed"}
    assert found[-1].name == "response.completed"
    whole = ResponsesWriter(state, {}).write_body([answer])["output"]
    assert [item["type"] for item in whole] == added


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("n", [20, 50, len(TEXT) - 20])
def test_responses_that_were_cut(state: Any, n: int, size: int) -> None:
    answer, found = answered(ResponsesWriter(state, {}), size, TEXT[:n])
    response, whole = found[-1].data["response"], ResponsesWriter(state, {}).write_body([answer])
    assert found[-1].name == "response.incomplete" and whole["status"] == "incomplete"
    done = [e.data["item"] for e in found if e.name == "response.output_item.done"]
    assert response["output"] == done and len(done) == {20: 1, 50: 2}.get(n, 3)
    for items in (done, whole["output"]):
        assert [i["status"] for i in items] == [*["completed"] * (len(items) - 1), "incomplete"]
    assert response["completed_at"] is None


def test_tokens_of_reasoning_are_counted(state: Any) -> None:
    answer, _ = answered(ResponsesWriter(state, {}), 1)
    end = TEXT.index("</think>")
    assert len("It may rain.") <= answer.n_reasoning <= end
    details = ChatWriter(state).write_body([answer])["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": answer.n_reasoning}
    usage = ResponsesWriter(state, {}).write_body([answer])["usage"]["output_tokens_details"]
    assert usage == {"reasoning_tokens": answer.n_reasoning}


def test_responses_repeat_the_request(state: Any) -> None:
    asked = {
        "tools": [{"type": "function", "name": "f"}],
        "tool_choice": "none",
        "top_logprobs": 2,
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "max_output_tokens": 9,
        "user": "u",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "text"}},
        "parallel_tool_calls": True,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
    }
    _, found = answered(ResponsesWriter(state, {**asked, "store": True}), 1000)
    heads = [e.data["response"] for e in found if "response" in e.data]
    assert len(heads) == 3
    for head in heads:
        assert head | asked == head and head["store"] is False
        assert (head["temperature"], head["top_p"]) == (0.8, 0.95)
    _, found = answered(ResponsesWriter(state, {}), 1000)
    head = found[0].data["response"]
    assert (head["tools"], head["tool_choice"], head["metadata"]) == ([], "auto", {})
    assert head["parallel_tool_calls"] is False
