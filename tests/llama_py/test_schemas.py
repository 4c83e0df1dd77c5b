"""JSON schemas as grammars: described objects, and assertions that no grammar can enforce."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from dev.torture.schemas.described import judged
from ggml_py.errors import GrammarError
from llama_py.grammar import compile_grammar
from llama_py.grammar.schema import enforce_schema
from tests.support.grammars import takes

Schema = dict[str, Any]
INT = {"type": "integer"}


def takes_json(schema: Schema) -> Any:
    return takes("json_schema", json.dumps(schema))


def left_out(schema: Schema) -> tuple[str, ...]:
    return compile_grammar("json_schema", json.dumps(schema)).left_out


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_objects_described_in_several_places(first: int) -> None:
    for number in range(first, first + 50):
        found = judged(number, lambda text: takes("json_schema", text))
        assert not [line for line in found if line.startswith("wrong")], number


@pytest.mark.parametrize(
    "beside",
    [
        {
            "if": {"properties": {"b": {"const": 1}}},
            "then": {"required": ["c"]},
            "else": {"properties": {"c": INT}},
        },
        {"dependentSchemas": {"a": {"properties": {"b": INT, "c": INT}}}},
        {"dependentRequired": {"a": ["b"]}, "allOf": [{"properties": {"b": INT, "c": INT}}]},
        {"$ref": "#/$defs/x", "$defs": {"x": {"allOf": [{"properties": {"b": INT, "c": INT}}]}}},
    ],
)
def test_properties_described_by_other_keywords(beside: Schema) -> None:
    judge = takes_json({"type": "object", "properties": {"a": INT}, **beside})
    assert judge('{"a": 1, "b": 1, "c": 1}') and not judge('{"a": 1, "b": 1, "d": 1}')


def test_a_branch_alone_is_an_object_of_its_own() -> None:
    circle = {"properties": {"kind": {"const": "circle"}, "r": INT}, "required": ["kind"]}
    square = {"properties": {"kind": {"const": "square"}, "side": INT}, "required": ["kind"]}
    judge = takes_json({"oneOf": [circle, {"$ref": "#/$defs/s"}], "$defs": {"s": square}})
    assert judge('{"kind": "circle", "r": 1}') and judge('{"kind": "square", "side": 1}')
    assert not judge('{"kind": "circle", "side": 1}')


TEXT, OBJECT, ARRAY = ({"type": type} for type in ("string", "object", "array"))
NOT_ENFORCED: tuple[tuple[Schema, str, str], ...] = (
    (TEXT | {"not": {"const": "a"}}, "/not", '"a"'),
    (TEXT | {"pattern": "^(?!a)"}, "/pattern", '"a"'),
    (TEXT | {"pattern": r"\bword\b"}, "/pattern", '"a"'),
    (TEXT | {"pattern": r"(a)\1"}, "/pattern", '"a"'),
    (TEXT | {"format": "idn-email"}, "/format", '"a"'),
    ({"format": "what"}, "/format", '"a"'),
    (INT | {"format": "int64"}, "", "7"),
    (ARRAY | {"uniqueItems": True}, "/uniqueItems", "[1, 1]"),
    (ARRAY | {"uniqueItems": False, "minContains": 1}, "", "[1, 1]"),
    (ARRAY | {"contains": {"const": 1}, "maxContains": 1}, "/contains /maxContains", "[2]"),
    (OBJECT | {"propertyNames": {"maxLength": 1}}, "/propertyNames", '{"ab": 1}'),
    (OBJECT | {"dependentRequired": {"a": ["b"]}}, "/dependentRequired", '{"a": 1}'),
    (OBJECT | {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "/if /then", '{"a": 1}'),
    (OBJECT | {"then": {"required": ["b"]}, "else": False}, "", '{"a": 1}'),
    (OBJECT | {"patternProperties": {"^(?=a)": INT}, "additionalProperties": False},
     "/patternProperties/^(?=a)", '{"ab": "x"}'),
    (OBJECT | {"properties": {"a/b": {"not": {}}}}, "/properties/a~1b/not", '{"a/b": 1}'),
    (INT | {"minimum": -(2**63), "maximum": 2**63 - 1}, "/minimum /maximum", str(-(2**63))),
    (INT | {"minimum": 2**53 + 1}, "/minimum", str(2**53 + 1)),
    ({"type": "number", "exclusiveMaximum": -(2**53)}, "/exclusiveMaximum", str(-(2**53) - 1)),
    (INT | {"minimum": 0, "maximum": 2**60 + 1}, "/maximum", str(2**60 + 1)),
    ({"const": 2**53 + 1}, "/const", str(2**53 + 1)),
    ({"enum": ["x", {"a": [-(2**63) - 1]}]}, "/enum", json.dumps({"a": [-(2**63) - 1]})),
    (INT | {"multipleOf": 10**10, "maximum": 7}, "/multipleOf", "3"),
    ({"type": "number", "maximum": 1e300}, "/maximum", "1.5"),
    ({"allOf": [INT | {"minimum": 1}, {"maximum": 10**30}]}, "/allOf/1/maximum", "1"),
    ({"$ref": "#/components/A", "components": {"A": TEXT | {"not": {}}}}, "/components/A/not",
     '"a"'),
    ({"$ref": "#/not", "not": INT}, "/not /$ref", '"a"'),
    ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, "/oneOf", "3"),
)  # fmt: skip


@pytest.mark.parametrize(("schema", "pointers", "text"), NOT_ENFORCED)
def test_assertions_that_are_left_out(schema: Schema, pointers: str, text: str) -> None:
    assert " ".join(left_out(schema)) == pointers
    assert takes_json(schema)(text)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            OBJECT | {"propertyNames": {"pattern": "^[A-Z]$"}, "additionalProperties": INT},
            '{"A": 1}',
            '{"a": 1}',
        ),
        (
            OBJECT | {"properties": {"a": INT}, "unevaluatedProperties": False},
            '{"a": 1}',
            '{"b": 1}',
        ),
        (
            OBJECT | {"properties": {"a": INT}, "unevaluatedProperties": TEXT},
            '{"b": "x"}',
            '{"b": 1}',
        ),
        (ARRAY | {"prefixItems": [INT], "unevaluatedItems": False}, "[1]", "[1, 2]"),
        ({"oneOf": [INT | {"maximum": 9}, INT | {"minimum": 20}]}, "20", "12"),
        ({"oneOf": [{"const": "low"}, {"const": "high"}]}, '"low"', '"no"'),
    ],
)
def test_keywords_that_are_written_otherwise(schema: Schema, good: str, bad: str) -> None:
    judge = takes_json(schema)
    assert left_out(schema) == () and judge(good) and not judge(bad)


def test_what_is_left_out_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = TEXT | {"not": {"const": "a"}, "title": "logged once"}
    with caplog.at_level(logging.WARNING, "llama_py"):
        for _ in range(2):
            compile_grammar("json_schema", json.dumps(schema))
    [said] = caplog.messages
    assert said == "JSON schema: the grammar does not enforce /not"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"$ref": "http://x/y"},
        {"$ref": "#/x"},
        INT | {"minimum": 3, "maximum": 1},
        OBJECT | {"properties": []},
        OBJECT | {"required": "a"},
    ],
)
def test_a_malformed_schema_is_refused_unless_that_is_wanted(schema: Schema) -> None:
    with pytest.raises(GrammarError):
        enforce_schema(json.dumps(schema))
    assert enforce_schema(json.dumps(schema), lenient=True).left_out


def test_branches_that_only_closing_tells_apart() -> None:
    """A value may meet both: other properties are valid in each of them."""
    schema = {
        "oneOf": [
            {"properties": {"a": INT}, "required": ["a"]},
            {"properties": {"b": INT}, "required": ["b"]},
        ]
    }
    assert left_out(schema) == ("/oneOf",)
    kinds = [
        OBJECT | {"properties": {"kind": {"const": k}}, "required": ["kind"]} for k in "ab"
    ]  # without a type, values that are no objects meet both
    assert left_out({"oneOf": kinds}) == ()
