"""Functions of Python as tools of a model."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest

from ggml_py.errors import ModelError
from llama_py.chat.answer import ToolCall
from llama_py.chat.functions import call_function, convert_tools, tool_schema


class Size(str, Enum):
    SMALL, LARGE = "small", "large"


def order(
    what: str,
    n: int = 1,
    size: Size = Size.SMALL,
    colour: Literal["red", "blue"] | None = None,
    notes: list[str] | None = None,
    more: Any = None,
) -> dict[str, Any]:
    """Order a thing
    from a shop.

    what: the thing
    n (int): how many
    :param size: of each
    """
    return {"what": what, "n": n}


def test_a_function_is_a_schema() -> None:
    tool = tool_schema(order)["function"]
    assert (tool["name"], tool["description"]) == ("order", "Order a thing from a shop.")
    assert tool["parameters"] == {
        "type": "object",
        "required": ["what"],
        "properties": {
            "what": {"type": "string", "description": "the thing"},
            "n": {"type": "integer", "description": "how many"},
            "size": {"enum": ["small", "large"], "description": "of each"},
            "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}]},
            "notes": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "more": {},
        },
    }
    given = {"type": "function", "function": {"name": "now"}}
    assert convert_tools([order, given]) == [tool_schema(order), given]


def unusual(a: list[None], b: dict[str, None], c: dict[str], d: Literal[None, 1]) -> None:  # type: ignore[type-arg]
    ...


def test_unusual_types() -> None:
    parameters = tool_schema(unusual)["function"]["parameters"]
    assert parameters["properties"] == {
        "a": {"type": "array", "items": {"type": "null"}},
        "b": {"type": "object", "additionalProperties": {"type": "null"}},
        "c": {"type": "object"},
        "d": {"enum": [None, 1]},
    }


def of_bytes(what: Literal[b"x"]) -> None: ...


def of_no_type(what: [int]) -> None:  # type: ignore[valid-type]
    ...


def several(*names: str) -> None: ...


def waits(seconds: complex) -> None: ...


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (several, "has no name; name each"),
        (waits, "has no JSON type"),
        (of_bytes, "has no JSON type"),
        (of_no_type, "has no JSON type"),
        (lambda: 0, "must have a name that is an identifier"),
        (max, "its signature cannot be read"),
    ],
)
def test_what_is_no_tool_is_refused(function: Any, rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        tool_schema(function)


def test_results_are_messages() -> None:
    message = call_function(ToolCall("order", '{"what": "tea", "n": 2}', "1"), [order])
    assert message == {
        "role": "tool",
        "tool_call_id": "1",
        "name": "order",
        "content": '{"what": "tea", "n": 2}',
    }
    with pytest.raises(ModelError, match="unknown function 'other'; known: order"):
        call_function(ToolCall("other", "{}"), [order])
    with pytest.raises(ModelError, match="the response was cut"):
        call_function(ToolCall("order", '{"what'), [order])


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ("[1]", "must be a JSON object"),
        ("[" * 10**5, "are not JSON"),
        ("{}", "does not accept {}: missing"),
        ('{"what": "tea", "size": "huge"}', "is not a valid Size"),
        ('{"whom": 1}', "does not accept"),
    ],
)
def test_arguments_that_a_function_does_not_take(arguments: str, rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        call_function(ToolCall("order", arguments), [order])


def when(size: Size = Size.SMALL) -> Any:
    return {"size": size.name, "day": date(2020, 1, 2)}


def test_values_that_json_does_not_have() -> None:
    found = call_function(ToolCall("when", '{"size": "large"}'), [when])["content"]
    assert found == '{"size": "LARGE", "day": "2020-01-02"}'
    assert '"SMALL"' in call_function(ToolCall("when", ""), [when])["content"]
