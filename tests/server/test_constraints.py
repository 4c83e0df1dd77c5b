"""Constraints in the words of several servers are enforced or refused, never ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.schema.constraints import drop_constraint, find_constraint
from llama_py_server.wire.errors import HTTPError
from tests.server.served import ASK, TOOL

SCHEMA = {"type": "integer", "enum": [7]}
GBNF, LARK = 'root ::= "7"', 'start: "7"'
KEPT: list[dict[str, Any]] = [
    {"json_schema": SCHEMA},
    {"json_schema": json.dumps(SCHEMA)},
    {"grammar": GBNF},
    {"grammar": LARK},
    {"regex": "7"},
    {"lark": LARK},
    {"ebnf": GBNF},
    {"format": SCHEMA},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"regex": "7"}},
    {"structured_outputs": {"choice": ["7"], "regex": None}},
    {"structured_outputs": {"grammar": GBNF, "disable_fallback": True}},
    {"guided_json": SCHEMA},
    {"guided_json": json.dumps(SCHEMA)},
    {"guided_regex": "7"},
    {"guided_choice": ["7"], "guided_decoding_backend": "outlines"},
    {"guided_grammar": GBNF},
    {"guided_grammar": LARK},
    {"nvext": {"guided_json": SCHEMA, "top_k": 3}},
    {"grammar": {"type": "regex", "value": "7"}},
    {"grammar": {"type": "json", "value": SCHEMA}},
    *(
        {"response_format": form}
        for form in (
            {"type": "json_object", "schema": SCHEMA},
            {"type": "json_object", "value": SCHEMA},
            {"type": "json", "value": SCHEMA},
            {"type": "json_schema", "schema": SCHEMA},
            {"type": "json_schema", "json_schema": SCHEMA},
            {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA, "strict": False},
            },
            {"type": "json_schema", "value": {"name": "x", "schema": SCHEMA}},
            {"type": "regex", "value": "7"},
            {"type": "regex", "pattern": "7"},
            {"type": "grammar", "grammar": GBNF},
        )
    ),
    {"response_format": {"type": "json_object"}, "guided_json": SCHEMA},
    {"guided_regex": "7", "regex": "7"},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": "7"}, "structured_outputs"), ({"structural_tag": "{}"}, "structural"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ({"response_schema": SCHEMA}, "response_schema"), ({"guided_choice": []}, "choice"),
    ({"grammar_lazy": True}, "grammar_lazy"), ({"regex": 7}, "regex"), ({"ebnf": {}}, "ebnf"),
    ({"json_schema": "{"}, "json_schema"), ({"guided_json": 7}, "guided_json"),
    ({"grammar": GBNF, "json_schema": SCHEMA}, "Cannot use both grammar and json_schema"),
    ({"regex": "7", "guided_regex": "8"}, "Cannot use both regex and guided_regex"),
    ({"response_format": {"type": "json_object"}, "regex": "7"}, "Cannot use both"),
    ({"response_format": {"type": "wonder"}}, "json_schema"),
    ({"response_format": {"schema": SCHEMA}}, "response_format"),
    ({"response_format": "json"}, "response_format"),
    ({"functions": [{"name": "f"}], "tools": [TOOL]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
]  # fmt: skip
OTHER = {
    "temperature": 0,
    "encoding_format": "float",
    "response_format": {"type": "text"},
    "structured_outputs": {},
    "guided_json": None,
    "grammar": "",
    "grammar_triggers": [],
    "nvext": {"top_k": 1},
    "functions": [],
    "chat_format": "x",
}


@pytest.mark.parametrize("asked", KEPT, ids=json.dumps)
def test_is_kept(client: TestClient, asked: dict[str, Any]) -> None:
    given = {**asked, "max_tokens": 16, "n_probs": 0}
    chat = client.post("/v1/chat/completions", json={"messages": ASK, **given}).json()
    text = chat["choices"][0]["message"]["content"].strip()
    assert text.removeprefix("```json").removesuffix("```").strip() == "7"
    for path in ("/v1/completions", "/completion"):
        found = client.post(path, json={"prompt": "ROMEO:", **given}).json()
        assert (found.get("content") or found["choices"][0]["text"]) == "7"


@pytest.mark.parametrize("asked, words", REFUSED, ids=str)
def test_is_refused(client: TestClient, asked: dict[str, Any], words: str) -> None:
    for path in ("/v1/chat/completions", "/completion"):
        response = client.post(path, json={"messages": ASK, "prompt": "a", **asked})
        assert response.status_code == 400 and words in response.json()["error"]["message"]


def test_others_are_no_constraints() -> None:
    assert find_constraint(OTHER) is None
    assert drop_constraint({"a": 1, **KEPT[0], "response_format": {}, "nvext": {}}) == {"a": 1}
    any_object = find_constraint({"response_format": {"type": "json_object"}})
    assert any_object is not None and any_object.value == {"type": "object"}
    with pytest.raises(HTTPError, match="regex"):
        find_constraint({"regex": ["7"]})
