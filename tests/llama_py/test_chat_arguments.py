"""Tools whose schemas no grammar can enforce: calls can be written, and are checked afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_py.chat.arguments import bundle_references
from llama_py.chat.tools import ChatFormat
from llama_py.grammar import judge
from llama_py.grammar.judge import problem
from tests.llama_py.test_chat_grammars import (
    HERMES,
    LINES,
    TEMPLATES,
    asked,
    call,
    constraint_of,
    taken,
)
from tests.llama_py.test_schemas import NOT_ENFORCED

Schema = dict[str, Any]
INT = {"type": "integer"}


def with_tool(name: str, parameters: Any, **options: Any) -> ChatFormat:
    tool = {"type": "function", "function": {"name": "act", "parameters": parameters}}
    return asked(name, tools=[tool], tool_choice="required", **options)


def tagged(**arguments: object) -> str:
    parts = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"</think>\n\n<tool_call>\n<function=act>\n{parts}</function>\n</tool_call>"


@pytest.mark.usefixtures("checks_in_this_process")
@pytest.mark.parametrize("name", sorted(TEMPLATES["templates"]))
def test_no_schema_refuses_a_template(name: str) -> None:
    """Each format makes a grammar of all tools, though none of their schemas can be enforced."""
    wrong: list[Any] = [
        {"type": "number", "multipleOf": "a"},
        {"type": "string", "$ref": "#/x"},
        {"type": "integer", "minimum": 3, "maximum": 1},
        {"type": "object", "$ref": "http://x/y"},
    ]
    given = [
        {"type": "object", "properties": {"x": {"type": "string", **one}}, "required": ["x"]}
        for one in (*(one for one, *_ in NOT_ENFORCED[:-1:3]), *wrong)
    ]
    tools = [
        {"type": "function", "function": {"name": f"act{i}", "parameters": one}}
        for i, one in enumerate(given)
    ]
    for choice in ("auto", "required"):
        form = asked(name, tools=tools, tool_choice=choice)
        assert form.grammar is not None or choice == "auto"
        assert len(form.warnings) > len(wrong)


@pytest.mark.parametrize(
    "parameters",
    [True, [], "text", {"properties": [], "required": 3}, {"type": "strin"}, {"$ref": "#/x"}],
)
def test_malformed_parameters_are_any_object(parameters: object) -> None:
    form = with_tool(HERMES, parameters)
    constraint = constraint_of(form)
    text = call("act", '{"any": [1]}')
    assert taken(constraint, text) == text and constraint.complete


REFERENCES: tuple[tuple[Schema, str, object], ...] = (
    ({"properties": {"name": {"type": "string"}, "child": {"$ref": "#"}}}, "child", {"name": "y"}),
    ({"properties": {"a": INT, "b": {"$ref": "#/properties/a"}}}, "b", 7),
    ({"properties": {"a": {"$ref": "#/components/A~1B"}}, "components": {
        "A/B": {"$ref": "#/components/C"}, "C": INT}}, "a", 7),
    ({"properties": {"a": {"$ref": "#an"}}, "$defs": {"x": INT | {"$anchor": "an"}}}, "a", 7),
    ({"properties": {"a": {"$ref": "#/$defs/x%20y"}}, "$defs": {"x y": INT, "ref0": {}}}, "a", 7),
    ({"properties": {"a": {"oneOf": [{"const": 7}, {"const": 8}]}}}, "a", 7),
    ({"properties": {"a": {"oneOf": [INT | {"maximum": 9}, INT | {"minimum": 20}]}}}, "a", 25),
)  # fmt: skip


@pytest.mark.parametrize(("schema", "key", "value"), REFERENCES)
def test_references_to_any_place(schema: Schema, key: str, value: object) -> None:
    for name in (HERMES, LINES):
        for good in (True, False):
            said = json.dumps(value if good else "no")
            text = tagged(**{key: said}) if name == LINES else call("act", f'{{"{key}": {said}}}')
            form = with_tool(name, {"type": "object", **schema})
            constraint = constraint_of(form)
            assert (taken(constraint, text) == text and constraint.complete) == good
            if good:
                [found] = form.parse(text).tool_calls
                assert json.loads(found.arguments) == {key: value} and not found.error


def test_references_become_definitions_once() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": INT}}
    assert bundle_references(json.loads(json.dumps(schema))) == schema


@pytest.mark.parametrize(
    ("name", "text"), [(HERMES, call("act", '{"tags": VALUE}')), (LINES, tagged(tags="VALUE"))]
)
def test_calls_that_fail_are_marked(name: str, text: str) -> None:
    tags = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    form = with_tool(name, {"type": "object", "properties": {"tags": tags}})
    assert form.warnings == (
        'tool "act": the grammar does not enforce /properties/tags/uniqueItems;'
        " checked after generation",
    )
    for value, error in (('["a", "b"]', ""), ('["a", "a"]', "$.tags: ['a', 'a'] has non-unique")):
        parser = form.parser()
        deltas = [*parser.feed(text.replace("VALUE", value)), *parser.rest()]
        [found] = parser.answer.tool_calls
        assert found.error.startswith(error) and bool(found.error) == bool(error)
        assert [d.error for d in deltas if d.error] == ([found.error] if error else [])


@pytest.mark.parametrize(
    "free",
    [
        {"additionalProperties": INT},
        {"properties": {"a": {"type": "object", "additionalProperties": True}}},
    ],
)
def test_repeated_keys_are_marked(free: Schema) -> None:
    """The grammar of a call may repeat keys that its schema does not name."""
    form = with_tool(HERMES, {"type": "object", **free})
    inner = '{"b": 1, "b": 2}'
    bad = inner if "properties" not in free else f'{{"a": {inner}}}'
    for text, error in (
        (bad, "an object has the key 'b' more than once"),
        (bad.replace('"b": 2', '"c": 2'), ""),
    ):
        assert form.parse(call("act", text)).tool_calls[0].error == error


def test_texts_in_tags_are_checked() -> None:
    """No grammar of this format enforces them, so the check does."""
    form = with_tool(
        LINES,
        {"type": "object", "properties": {"to": {"type": "string", "not": {"enum": ["root"]}}}},
    )
    [good], [bad] = (form.parse(tagged(to=to)).tool_calls for to in ("me", "root"))
    assert not good.error and bad.error.startswith("$.to: 'root' should not be valid under")


def test_enforced_arguments_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "_problem", lambda *_: "checked")
    schema = {"type": "object", "properties": {"a": INT}}
    assert not with_tool(HERMES, schema).parse(call("act", '{"a": 1}')).tool_calls[0].error
    schema = {"type": "object", "properties": {"a": INT | {"not": {"const": 3}}}}
    assert with_tool(HERMES, schema).parse(call("act", '{"a": 1}')).tool_calls[0].error


DRAFT4 = "http://json-schema.org/draft-04/schema#"


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (INT, "7", ""),
        (INT, '"a"', "$: 'a' is not of type 'integer'"),
        (INT, "{", "not JSON"),
        ({"pattern": "^(?!a)"}, '"b"', ""),
        ({"pattern": "^(?!a)"}, '"a"', "$: 'a' does not match"),
        (
            {"pattern": "^(a+)+$"},
            json.dumps("a" * 99 + "!"),
            "not checked: the check takes more than 1 s",
        ),
        ({"type": "what"}, "1", "not checked: UnknownType"),
        ({"multipleOf": 0}, "1", "not checked"),
        ({"$ref": "http://127.0.0.1:1/x"}, "1", "not checked: "),
        ({"$ref": "#"}, "1", "not checked"),
        (
            {
                "allOf": [{"$ref": "#/$defs/d30"}],
                "$defs": {
                    "d0": {},
                    **{
                        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i - 1}"}] * 2}
                        for i in range(1, 31)
                    },
                },
            },
            "1",
            "not checked: RecursionError: more than",
        ),
        ({"$schema": DRAFT4, "minimum": 3, "exclusiveMinimum": True}, "3", "$: 3 is less than or"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/definitions/a",
                "not": {},
                "definitions": {"a": INT},
            },
            "3",
            "",
        ),
    ],
)
def test_problems(schema: Schema, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No schema takes long, and none reads another document."""
    if "(a+)+" in str(schema):
        monkeypatch.setattr(judge, "SECONDS", 1)
    found = problem(json.dumps(schema), value)
    assert found.startswith(said) and bool(found) == bool(said)


def test_without_jsonschema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_py.grammar.judge.find_spec", lambda name: None)
    form = with_tool(HERMES, {"type": "object", "not": {}})
    assert form.warnings[0].endswith(
        "does not enforce /not; not checked, because jsonschema is not installed"
    )
    assert not form.parse(call("act", "{}")).tool_calls[0].error


@pytest.mark.parametrize("name", ["MiniMax-M3", "google-gemma-4-31B-it"])
def test_grammars_of_recursive_schemas_are_small(name: str) -> None:
    children = {f"c{i}": {"$ref": "#"} for i in range(4)}
    grammar = with_tool(name, {"type": "object", "properties": children}).grammar
    assert grammar is not None and len(grammar.form) < 20_000
