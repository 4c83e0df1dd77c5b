"""Expressions for values in JSON and in Python."""

from __future__ import annotations

from collections.abc import Iterable

from llama_py.chat.peg.leaves import QuotedText, characters
from llama_py.chat.peg.named import NamedRule
from llama_py.chat.peg.nodes import (
    SPACE,
    Expression,
    Later,
    Schema,
    choice,
    never,
    optional,
    repetition,
    seq,
)

DOUBLE = NamedRule("json-string", seq('"', QuotedText('"'), '"'))
SINGLE = NamedRule("single-quoted-string", seq("'", QuotedText("'"), "'"))
_DIGITS = characters("[0-9]")
# Complete only before another character: 3 may become 3.14.
NUMBER = NamedRule(
    "json-number",
    seq(
        optional("-"),
        choice("0", characters("[1-9]", 1, 1) + characters("[0-9]", 0)),
        optional("." + _DIGITS),
        optional(choice("e", "E") + optional(characters("[+-]", 1, 1)) + _DIGITS),
        never(characters("[0-9.eE+-]", 1, 1)),
    ),
)
BOOLEAN = NamedRule("json-bool", choice("true", "false"))
NULL = NamedRule("json-null", "null" + seq())


def container(name: str, first: str, item: Expression, last: str, comma: Expression) -> Expression:
    """Return items in brackets, separated by commas."""
    items = seq(item, repetition(comma + item))
    return NamedRule(name, seq(first, SPACE, choice(last, seq(items, SPACE, last))))


OBJECT: Expression
ARRAY: Expression
_DICT: Expression
_LIST: Expression
_COMMA = seq(SPACE, ",", SPACE)
JSON = NamedRule("json-value", Later(lambda: choice(OBJECT, ARRAY, DOUBLE, NUMBER, BOOLEAN, NULL)))
OBJECT = container("json-object", "{", DOUBLE << ":" << JSON, "}", _COMMA)
ARRAY = container("json-array", "[", JSON, "]", _COMMA)

PYTHON = NamedRule(
    "python-value",
    Later(
        lambda: choice(_DICT, _LIST, DOUBLE, SINGLE, NUMBER, "True", "False", "None", BOOLEAN, NULL)
    ),
)
_DICT = container("python-dict", "{", choice(DOUBLE, SINGLE) << ":" << PYTHON, "}", _COMMA) + SPACE
_LIST = container("python-list", "[", PYTHON, "]", seq(",", SPACE)) + SPACE


def json_kinds(types: Iterable[str]) -> list[Expression]:
    """Return expressions of JSON values of the given types, except strings."""
    found = {
        "object": OBJECT, "array": ARRAY, "number": NUMBER, "integer": NUMBER, "boolean": BOOLEAN,
        "null": NULL,
    }  # fmt: skip
    known = set(types)
    return list(dict.fromkeys(one for type, one in found.items() if type in known))


def of_schema(schema: object) -> Expression:
    """Return an expression of JSON by a schema."""
    return Schema(JSON, schema)


def member(key: str, value: Expression) -> Expression:
    """Return an expression of an object's `"key": value`."""
    return f'"{key}"' << seq(":") << value
