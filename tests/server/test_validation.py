"""Schemas that no grammar can enforce: requests are answered, and the answers are checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.llama_py.test_schemas import NOT_ENFORCED
from tests.server.served import ASK
from tests.server.test_chat import CHAT, MESSAGES, RESPONSES, post, streamed

WARNING = "x-schema-warning"
# The grammar writes the constant, which is wrong because of a keyword that it does not enforce.
WRONG = {"const": "no", "not": {"const": "no"}}
ERROR = "$: 'no' should not be valid under {'const': 'no'}"


def tool_bodies(parameters: Any, choice: str) -> dict[str, dict[str, Any]]:
    function = {"name": "act", "parameters": parameters}
    tools = [{"name": "act", "input_schema": parameters}]
    any_of = {"type": "any" if choice == "required" else choice}
    return {
        CHAT: {
            "messages": ASK,
            "max_tokens": 100,
            "tool_choice": choice,
            "tools": [{"type": "function", "function": function}],
        },
        MESSAGES: {"messages": ASK, "max_tokens": 100, "tools": tools, "tool_choice": any_of},
        RESPONSES: {
            "input": "Who?",
            "max_output_tokens": 100,
            "tool_choice": choice,
            "tools": [{"type": "function", **function}],
        },
    }


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_no_tool_refuses_a_request(calling: TestClient, path: str) -> None:
    schemas = [schema for schema, *_ in NOT_ENFORCED if "components" not in schema]
    parameters = {"type": "object", "properties": {f"p{i}": s for i, s in enumerate(schemas)}}
    for wrong in (parameters, {"type": "object", "$ref": "#/x"}):
        response = calling.post(path, json=tool_bodies(wrong, "auto")[path])
        assert response.status_code == 200, response.text
        assert response.headers[WARNING].startswith('tool "act": the grammar does not enforce /')
    fine = calling.post(path, json=tool_bodies({"type": "object"}, "auto")[path])
    assert WARNING not in fine.headers


def test_calls_that_fail_are_marked(calling: TestClient) -> None:
    wrong = {"type": "object", "properties": {"mode": WRONG}, "required": ["mode"]}
    bodies, error = tool_bodies(wrong, "required"), ERROR.replace("$", "$.mode")
    call = post(calling, CHAT, **bodies[CHAT])["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"mode": "no"}
    assert call["validation_error"] == error
    chunks = streamed(calling, CHAT, **bodies[CHAT])
    deltas = [c["choices"][0]["delta"].get("tool_calls", [{}])[0] for _, c in chunks[:-1]]
    [mark] = [delta for delta in deltas if "validation_error" in delta]
    assert mark == {"index": 0, "function": {"arguments": ""}, "validation_error": error}

    block = post(calling, MESSAGES, **bodies[MESSAGES])["content"][-1]
    assert block["type"] == "tool_use" and block["validation_error"] == error
    found = streamed(calling, MESSAGES, **bodies[MESSAGES])
    assert [name for name, _ in found][-2:] == ["message_delta", "message_stop"]
    [marked] = found[-2][1]["validation_errors"]
    assert marked["validation_error"] == error

    assert post(calling, RESPONSES, **bodies[RESPONSES])["output"][-1]["validation_error"] == error
    found = streamed(calling, RESPONSES, **bodies[RESPONSES])
    done = [data["item"] for name, data in found if name == "response.output_item.done"]
    assert done[-1]["validation_error"] == error
    right = {
        "type": "object",
        "properties": {"mode": {"const": "a", "not": {"const": "no"}}},
        "required": ["mode"],
    }
    message = post(calling, CHAT, **tool_bodies(right, "required")[CHAT])["choices"][0]["message"]
    assert "validation_error" not in str(message)


def test_marked_calls_may_be_sent_back(calling: TestClient) -> None:
    wrong = {"type": "object", "properties": {"mode": WRONG}, "required": ["mode"]}
    bodies = tool_bodies(wrong, "required")
    message = post(calling, CHAT, **bodies[CHAT])["choices"][0]["message"]
    [call] = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "wrong"}
    post(calling, CHAT, **bodies[CHAT] | {"messages": [*ASK, message, result]})

    message = post(calling, MESSAGES, **bodies[MESSAGES])
    said = {"role": "assistant", "content": message["content"]}
    results = [{"type": "tool_result", "tool_use_id": message["content"][-1]["id"]}]
    again = [*ASK, said, {"role": "user", "content": results}]
    post(calling, MESSAGES, **bodies[MESSAGES] | {"messages": again})

    output = post(calling, RESPONSES, **bodies[RESPONSES])["output"]
    result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "wrong"}
    again = [*ASK, *output, result]
    post(calling, RESPONSES, **bodies[RESPONSES] | {"input": again})


@pytest.mark.parametrize(("schema", "pointers", "text"), NOT_ENFORCED)
def test_a_strict_schema_is_enforced_or_refused(
    client: TestClient, schema: dict[str, Any], pointers: str, text: str
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    given = {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": schema}}
    for path, body in (
        (CHAT, {"messages": ASK, "max_tokens": 2, "response_format": form}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 2, "response_format": form}),
        (RESPONSES, {"input": "Who?", "max_output_tokens": 2, "text": given}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == (400 if pointers else 200), (path, response.text)
        said = response.text
        assert not pointers or "strict is true, but the grammar does not enforce" in said
        assert all(json.dumps(pointer)[1:-1] in said for pointer in pointers.split())


def test_a_response_is_checked(client: TestClient) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": WRONG}}
    body = {"messages": ASK, "max_tokens": 40, "response_format": form}
    response = client.post(CHAT, json=body)
    [choice] = response.json()["choices"]
    assert response.headers[WARNING].startswith(
        "response_format: the grammar does not enforce /not"
    )
    assert json.loads(choice["message"]["content"]) == "no"
    assert choice["validation_error"] == ERROR
    *_, last, _ = streamed(client, CHAT, **body)
    assert last[1]["choices"][0]["validation_error"] == ERROR
    item = post(
        client,
        RESPONSES,
        input="Who?",
        max_output_tokens=40,
        text={"format": {"type": "json_schema", "name": "x", "schema": WRONG}},
    )["output"][-1]
    assert item["validation_error"] == ERROR
    found = post(client, "/completion", prompt="x", n_predict=40, json_schema=WRONG)
    assert found["validation_error"] == ERROR
    body = {"prompt": "x", "max_tokens": 40, "response_format": form}
    assert post(client, "/v1/completions", **body)["choices"][0]["validation_error"] == ERROR
    assert "validation_error" not in post(client, CHAT, messages=ASK, json_schema={"const": 7})
