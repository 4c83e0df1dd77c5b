"""Python functions as tools: JSON schemas of their parameters, and calls.

def degrees(city: str, unit: Literal["C", "F"] = "C") -> float:
    '''Return the current temperature.

    city: of any country
    '''

tool_of(degrees)  # in the form of the OpenAI API
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ggml_py._moved import former_names
from ggml_py.errors import ModelError
from llama_py.chat.answer import ToolCall

Function: TypeAlias = Callable[..., Any]
Schema = dict[str, Any]
_PLAIN = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
}
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# `name: description` and `name (int): ...` in a separate line, `:param name: ...`.
_TOLD = r"^\s*(?::param\s+(?:\S+\s+)?)?{name}(?:\s*\([^)]*\))?\s*:\s*(.+)$"


def tool_schema(function: Function) -> Schema:
    """Return a tool: the function's name, the first paragraph of its docstring, and its parameters.

    Types are str, int, float, bool, None, Literal, Enum of str, list, dict, and their unions;
    a parameter without annotation takes any type. Lines `name: text` of the docstring describe
    parameters. Raises ModelError for other types, *args, **kwargs, and functions without a name.
    """
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise ModelError(
            f"a tool must have a name that is an identifier, got {name!r} of {function!r}"
        )
    told = inspect.getdoc(function) or ""
    try:
        hints = get_type_hints(function)
    except Exception as e:  # errors of string annotations
        raise ModelError(
            f"tool {name}: annotations cannot be evaluated: {e}; correct them"
        ) from None
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C
        raise ModelError(
            f"tool {name}: its signature cannot be read; wrap it in a Python function"
        ) from None
    properties: Schema = {}
    required = []
    for one in parameters:
        if one.kind in _VARIABLE or one.kind == inspect.Parameter.POSITIONAL_ONLY:
            raise ModelError(f"tool {name}: parameter {one} has no name; name each parameter")
        schema = _schema(hints.get(one.name, Any), f"tool {name}, parameter {one.name}")
        text = re.search(_TOLD.format(name=re.escape(one.name)), told, re.M)
        properties[one.name] = schema | ({"description": text[1]} if text else {})
        if one.default is inspect.Parameter.empty:
            required.append(one.name)
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": " ".join(told.partition("\n\n")[0].split()),
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def convert_tools(tools: Sequence[Function | Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return tools in the form of the OpenAI API, converting functions."""
    return [tool if isinstance(tool, Mapping) else tool_schema(tool) for tool in tools]


def call_function(call: ToolCall, functions: Sequence[Function]) -> Schema:
    """Call the function that a model requested; return the message with its result, a string or
    JSON (other types as `str`).

    Raises ModelError for an unknown function, a truncated call and invalid arguments, and the
    exceptions of the function.
    """
    known = {getattr(function, "__name__", ""): function for function in functions}
    if call.name not in known:
        raise ModelError(f"unknown function {call.name!r}; known: {', '.join(known) or 'none'}")
    function = known[call.name]
    result = function(**_arguments(call, function))
    told = partial(json.dumps, ensure_ascii=False, default=str)
    text = result if isinstance(result, str) else told(result)
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}


def _arguments(call: ToolCall, function: Function) -> dict[str, Any]:
    """Return a function's arguments; members of an Enum are converted from their values."""
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as e:
        raise ModelError(
            f"arguments of {call.name} are not JSON ({e}): the response was cut; allow more tokens"
        ) from None
    if not isinstance(found, dict):
        raise ModelError(f"arguments of {call.name} must be a JSON object, got {call.arguments}")
    try:
        inspect.signature(function).bind(**found)
        hints = get_type_hints(function)
        return {name: _member(hints.get(name), value) for name, value in found.items()}
    except (TypeError, ValueError, NameError) as e:
        raise ModelError(f"{call.name} does not accept {call.arguments}: {e}") from None


def _member(hint: Any, value: Any) -> Any:
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value


def _schema(hint: Any, where: str) -> Schema:
    if hint is Any:
        return {}
    if isinstance(hint, Hashable) and hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Literal and all(type(one) in _PLAIN for one in args):
        return {"enum": list(args)}
    if isinstance(origin, type) and issubclass(origin, Enum) and issubclass(origin, str):
        return {"enum": [one.value for one in origin]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, where) for one in args]}
    if origin is list:
        return {"type": "array"} | ({"items": _schema(args[0], where)} if args else {})
    if origin is dict:
        more = {"additionalProperties": _schema(args[1], where)} if len(args) == 2 else {}
        return {"type": "object", **more}
    raise ModelError(
        f"{where}: {hint} has no JSON type; use str, int, float, bool, list, dict or Literal"
    )


if not TYPE_CHECKING:
    __getattr__ = former_names(
        __name__, result_of="call_function", tools_of="convert_tools", tool_of="tool_schema"
    )
