"""Conversations by the three APIs that have them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py.chat import ChatTemplate
from llama_py.chat.tools import ChatFormat
from llama_py_server.models.state import ModelState
from llama_py_server.schema.chat import read_chat
from tests.server.served import ASK, TOOL, events, template

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
AS_ANTHROPIC = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
AS_RESPONSES = {"type": "function", **TOOL["function"]}


def post(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def streamed(client: TestClient, path: str, **body: Any) -> list[tuple[str, Any]]:
    response = client.post(path, json={**body, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    return events(response.text)


def test_three_apis_say_the_same(client: TestClient) -> None:
    chat = post(client, CHAT, messages=ASK)
    text = chat["choices"][0]["message"]["content"]
    assert text and chat["choices"][0]["finish_reason"] in ("length", "stop")
    message = post(client, MESSAGES, messages=ASK, max_tokens=12)
    assert message["content"] == [{"type": "text", "text": text}]
    assert message["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]
    response = post(client, RESPONSES, input="Who are you?")
    assert response["output"][0]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("body", "parallel"),
    [({}, False), ({"parallel_tool_calls": None}, False), ({"parallel_tool_calls": True}, True)],
)
def test_parallel_calls_default_to_the_template(
    state: ModelState, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], parallel: bool
) -> None:
    source = template("meta-llama-Llama-3.1-8B-Instruct")  # it takes one call per message
    monkeypatch.setitem(vars(state.model), "chat_template", ChatTemplate(source))
    chat, *_ = read_chat(state, {"messages": ASK, "tools": [TOOL], **body})
    assert isinstance(chat.format, ChatFormat) and chat.format.asked.parallel == parallel


def test_streams_say_the_same(client: TestClient) -> None:
    text = post(client, CHAT, messages=ASK)["choices"][0]["message"]["content"]
    *chunks, last, usage, done = streamed(
        client, CHAT, messages=ASK, stream_options={"include_usage": True}
    )
    assert chunks[0][1]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    deltas = [c["choices"][0]["delta"] for _, c in chunks[1:]]
    assert "".join(d["content"] for d in deltas) == text
    assert last[1]["choices"][0]["delta"] == {} and done[1] == "[DONE]"
    assert usage[1]["choices"] == [] and usage[1]["usage"]["completion_tokens"] > 0

    found = streamed(client, MESSAGES, messages=ASK, max_tokens=12)
    names = [name for name, _ in found]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert all(name == data["type"] for name, data in found)
    deltas = [data["delta"]["text"] for name, data in found if name == "content_block_delta"]
    assert "".join(deltas) == text

    found = streamed(client, RESPONSES, input="Who are you?")
    assert [data["sequence_number"] for _, data in found] == [*range(len(found))]
    parts = [data["delta"] for name, data in found if name == "response.output_text.delta"]
    assert "".join(parts) == text
    assert found[-1][0] == "response.incomplete"


@pytest.mark.parametrize("grammar", ["", 'root ::= ""'])
def test_a_stream_without_text_begins_as_any(client: TestClient, grammar: str) -> None:
    body: dict[str, Any] = {"messages": ASK, "max_tokens": 0, "grammar": grammar}
    first, *_, last, done = streamed(client, CHAT, **body)
    assert first[1]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert last[1]["choices"][0]["finish_reason"] and done[1] == "[DONE]"
    names = [name for name, _ in streamed(client, MESSAGES, **body)]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    body["input"] = body.pop("messages")
    assert streamed(client, RESPONSES, **body)[0][0] == "response.created"


def test_tools_are_called(calling: TestClient) -> None:
    client, body = calling, {"messages": ASK, "max_tokens": 100}
    chat = post(client, CHAT, **body, tools=[TOOL], tool_choice="required")
    choice = chat["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    call = choice["message"]["tool_calls"][0]
    assert call["type"] == "function" and call["id"] and call["function"]["name"] == "weather"
    assert "place" in json.loads(call["function"]["arguments"])

    chunks = streamed(client, CHAT, **body, tools=[TOOL], tool_choice="required")
    deltas = [c["choices"][0]["delta"] for _, c in chunks[:-1]]
    parts = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert parts[0]["id"] and parts[0]["function"]["name"] == "weather"
    arguments = "".join(p["function"].get("arguments", "") for p in parts)
    assert arguments == call["function"]["arguments"]

    message = post(client, MESSAGES, **body, tools=[AS_ANTHROPIC], tool_choice={"type": "any"})
    block = message["content"][-1]
    assert (message["stop_reason"], block["type"]) == ("tool_use", "tool_use")
    assert block["input"] == json.loads(arguments)

    found = streamed(client, MESSAGES, **body, tools=[AS_ANTHROPIC], tool_choice={"type": "any"})
    deltas = [d["delta"] for name, d in found if name == "content_block_delta"]
    assert "".join(d.get("partial_json", "") for d in deltas) == arguments

    response = post(
        client,
        RESPONSES,
        input="Who are you?",
        max_output_tokens=100,
        tools=[AS_RESPONSES],
        tool_choice="required",
    )
    item = response["output"][-1]
    assert (item["type"], item["arguments"]) == ("function_call", arguments)


@pytest.mark.parametrize("choice", [{"name": "weather"}, "none"])
def test_functions_are_called(calling: TestClient, choice: Any) -> None:
    """The older form of tools: one call, in the message's `function_call`."""
    body = {"messages": ASK, "max_tokens": 100, "functions": [TOOL["function"]]}
    (found,) = post(calling, CHAT, **body, function_call=choice)["choices"]
    call = found["message"].get("function_call")
    assert "tool_calls" not in found["message"]
    assert (found["finish_reason"] == "function_call") == (call is not None) == (choice != "none")
    chunks = streamed(calling, CHAT, **body, function_call=choice)[:-1]
    deltas = [c["choices"][0]["delta"].get("function_call", {}) for _, c in chunks]
    joined = {key: "".join(d.get(key, "") for d in deltas) for key in ("name", "arguments")}
    assert joined == (call or {"name": "", "arguments": ""})
    assert chunks[-1][1]["choices"][0]["finish_reason"] == found["finish_reason"]
    if call is not None:
        assert call["name"] == "weather" and "place" in json.loads(call["arguments"])
        result = {"role": "function", "name": "weather", "content": "rain"}
        history = [*ASK, {**found["message"], "content": None}, result]
        assert post(calling, CHAT, **{**body, "messages": history, "max_tokens": 4})["choices"]


def test_a_function_that_is_cut_has_its_name(calling: TestClient) -> None:
    body = {
        "messages": ASK,
        "max_tokens": 1,
        "functions": [TOOL["function"]],
        "function_call": {"name": "weather"},
    }
    call = {"name": "weather", "arguments": ""}
    (found,) = post(calling, CHAT, **body)["choices"]
    assert (found["finish_reason"], found["message"]["function_call"]) == ("length", call)
    deltas = [c["choices"][0]["delta"] for _, c in streamed(calling, CHAT, **body)[:-1]]
    assert [d["function_call"] for d in deltas if "function_call" in d] == [call]


def test_results_of_tools_go_back(calling: TestClient) -> None:
    client = calling
    call = {"name": "weather", "arguments": '{"place": "here"}'}
    messages = [
        *ASK,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    assert post(client, CHAT, messages=messages)["choices"][0]["message"]
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "1", "name": "weather", "input": {"place": "here"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1",
             "content": [{"type": "text", "text": "rain"}]},
        ]},
    ]  # fmt: skip
    assert post(client, MESSAGES, messages=blocks, max_tokens=4)["content"]
    items = [
        {"role": "user", "content": "Who are you?"},
        {"type": "function_call", "call_id": "1", **call},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ]
    assert post(client, RESPONSES, input=items)["output"]


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_object", "schema": {"enum": ["x", "y"]}},
        {"type": "json_schema", "json_schema": {"schema": {"enum": ["x", "y"]}}},
    ],
)
def test_response_format(client: TestClient, form: dict[str, Any]) -> None:
    found = post(client, CHAT, messages=ASK, response_format=form, max_tokens=32)
    assert json.loads(found["choices"][0]["message"]["content"]) in ("x", "y")


def test_logprobs_and_choices(client: TestClient) -> None:
    found = post(client, CHAT, messages=ASK, logprobs=True, top_logprobs=2, n=2)
    assert [c["index"] for c in found["choices"]] == [0, 1]
    content = found["choices"][0]["logprobs"]["content"]
    said = "".join(one["token"] for one in content)
    assert said.strip() == found["choices"][0]["message"]["content"].strip()
    assert all(len(one["top_logprobs"]) == 2 for one in content)


TWO = "\U0001f600é"  # of several tokens each


def pieces(content: list[Any]) -> bytes:
    assert all(one["bytes"] and one["logprob"] <= 0 for one in content)
    return b"".join(bytes(one["bytes"]) for one in content)


def test_each_token_has_its_own_bytes(client: TestClient) -> None:
    body = {"messages": ASK, "max_tokens": 12, "grammar": f'root ::= "{TWO}"', "logprobs": True}
    content = post(client, CHAT, **body)["choices"][0]["logprobs"]["content"]
    assert len(content) > len(TWO) and pieces(content) == TWO.encode()
    assert any("\\x" in one["token"] for one in content)
    chunks = [data["choices"][0] for _, data in streamed(client, CHAT, **body)[:-1]]
    told = [one for c in chunks if c.get("logprobs") for one in c["logprobs"]["content"]]
    assert told == content
    stopped = post(client, CHAT, **body, stop=[TWO[1]])["choices"][0]
    assert stopped["message"]["content"] == TWO[0]
    assert pieces(stopped["logprobs"]["content"]) == TWO[0].encode()


@pytest.mark.parametrize(
    "asked, n",
    [
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 2}, 2),
        ({"logprobs": True}, 20),
        ({"logprobs": 1}, 1),
        ({"logprobs": 1, "top_logprobs": 0}, 0),
        ({"n_probs": 3}, 3),
    ],
)
def test_how_many_logprobs(client: TestClient, asked: dict[str, Any], n: int) -> None:
    body = {"messages": ASK, "max_tokens": 2, **asked}
    content = post(client, CHAT, **body)["choices"][0]["logprobs"]["content"]
    assert [len(one["top_logprobs"]) for one in content] == [n, n] and pieces(content)


def test_logprobs_of_calls_and_of_responses(client: TestClient, calling: TestClient) -> None:
    body: dict[str, Any] = {"messages": ASK, "max_tokens": 9, "logprobs": True, "top_logprobs": 2}
    chunks = streamed(calling, CHAT, **body, tools=[TOOL])
    told = [c["choices"][0]["logprobs"] for _, c in chunks[:-1] if "logprobs" in c["choices"][0]]
    assert sum(len(one["content"]) for one in told) == 9
    asked: Any = {"input": "Who?", "top_logprobs": 1, "include": ["message.output_text.logprobs"]}
    part = post(client, RESPONSES, **asked)["output"][0]["content"][0]
    assert pieces(part["logprobs"]).decode().strip() == part["text"].strip()
    deltas = [
        d["logprobs"]
        for name, d in streamed(client, RESPONSES, **asked)
        if name == "response.output_text.delta"
    ]
    assert [one for some in deltas for one in some] == part["logprobs"]


def test_an_answer_that_was_begun(client: TestClient) -> None:
    begun = [*ASK, {"role": "assistant", "content": "I am"}]
    prompt = client.post("/apply-template", json={"messages": begun}).json()["prompt"]
    assert prompt.endswith("I am")
    explicit = {"add_generation_prompt": False, "continue_final_message": True}
    again = client.post("/apply-template", json={"messages": begun, **explicit}).json()["prompt"]
    assert again == prompt


def test_tokens_are_counted(client: TestClient) -> None:
    n = post(client, CHAT, messages=ASK)["usage"]["prompt_tokens"]
    counted = post(client, "/v1/messages/count_tokens", messages=ASK)
    assert counted == {"input_tokens": n}
    assert post(client, f"{CHAT}/input_tokens", messages=ASK)["input_tokens"] == n
    assert post(client, f"{RESPONSES}/input_tokens", input="Who are you?")["input_tokens"] == n


@pytest.mark.parametrize(
    "path, body, words",
    [
        (CHAT, {}, "'messages' is required"),
        (CHAT, {"messages": "x"}, "array"),
        (CHAT, {"messages": [{}]}, "role"),
        (CHAT, {"messages": [{"role": "user"}]}, "must contain 'content'"),
        (CHAT, {"messages": [{"role": "user", "content": 1}]}, "string or an array"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "content[].type"),
        (CHAT, {"messages": ASK, "response_format": {"type": "sound"}}, "sound"),
        (CHAT, {"messages": ASK, "tool_choice": "perhaps"}, "tool_choice"),
        (CHAT, {"messages": ASK, "top_logprobs": 3}, "top_logprobs requires"),
        (CHAT, {"messages": ASK, "tools": [TOOL], "grammar": 'root ::= "a"'}, "Cannot use"),
        (CHAT, {"messages": ASK, "continue_final_message": True}, "Cannot set both"),
        (MESSAGES, {"max_tokens": 3}, "'messages' is required"),
        (RESPONSES, {}, "'input' is required"),
        (RESPONSES, {"input": [{"type": "x"}]}, "Cannot determine type"),
        (RESPONSES, {"input": "a", "previous_response_id": "x"}, "previous_response_id"),
    ],
)
def test_errors(client: TestClient, path: str, body: dict[str, Any], words: str) -> None:
    response = client.post(path, json=body)
    assert response.status_code == 400 and words in response.json()["error"]["message"]


def test_images_are_refused_as_llama_server_does(client: TestClient) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    response = client.post(CHAT, json={"messages": [{"role": "user", "content": content}]})
    assert response.status_code == 500
    assert "image input is not supported" in response.json()["error"]["message"]


def test_no_messages(client: TestClient) -> None:
    assert post(client, MESSAGES, messages=[], max_tokens=4)["type"] == "message"
