"""Tool calls as JSON objects (chat-peg-parser.cpp:standard_json_tools)."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.chat.formats.form import (
    AnswerRequest,
    Tool,
    call,
    call_arguments,
    closed,
    identified,
    iterate_tools,
    named,
    opened,
    tool_rule,
)
from llama_py.chat.peg.leaves import QuotedText
from llama_py.chat.peg.named import trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    atomic,
    choice,
    join_items,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import NUMBER, member

COMMA = seq(SPACE, ",", SPACE)


@dataclass(frozen=True)
class CallKeys:
    """Keys of a tool call that is a JSON object.

    name, arguments  keys of name and arguments; `function.name`: key of a nested object
    id, made_id  keys of the API's and of the model's call id; empty if the format has no id
    order        order of the keys
    array        True if calls are in a JSON array
    by_name      True for objects `{"name of the tool": arguments}`
    """

    name: str = "name"
    arguments: str = "arguments"
    id: str = ""
    made_id: str = ""
    order: tuple[str, ...] = ("name", "arguments")
    array: bool = False
    by_name: bool = False


def json_calls(
    marks: tuple[str, str], keys: CallKeys, asked: AnswerRequest, wrapper: bool = False
) -> Expression:
    """Return the expression of tool calls between two delimiters.

    wrapper  True if a call may begin with `"type": "function"`
    """
    one = choice(
        *(
            tool_rule(name, json_call(name, tool, keys, wrapper))
            for name, tool in iterate_tools(asked)
        )
    )
    calls = one + repetition(COMMA + one) if asked.parallel else one
    if keys.array:
        calls = seq("[", SPACE, calls, SPACE, "]")
    return trigger("tool call", seq(marks[0], SPACE, calls, SPACE, marks[1]))


def json_call(name: str, tool: Tool, keys: CallKeys, wrapper: bool = False) -> Expression:
    """Return the expression of one call as a JSON object."""
    how = _build_named_call if keys.by_name else _build_nested_call if "." in keys.name else _flat
    return call(how(name, tool, keys, wrapper))


def _name(name: str) -> Expression:
    return atomic(seq('"', named(name), '"'))


def _id(key: str, numbers: bool = True) -> Expression:
    text = seq('"', identified(QuotedText('"')), '"')
    value = choice(text, identified(NUMBER)) if numbers else text
    return atomic(member(key, value))


def _flat(name: str, tool: Tool, keys: CallKeys, wrapper: bool) -> Expression:
    parts = [
        (member(keys.name, _name(name)), keys.name),
        (member(keys.arguments, call_arguments(tool)), keys.arguments),
    ]
    parts += [(optional(_id(key)), key) for key in (keys.id, keys.made_id) if key]
    order = keys.order
    parts.sort(key=lambda part: order.index(part[1]) if part[1] in order else len(order))
    kind = optional(member("type", lit('"function"')) + COMMA) if wrapper else NOTHING
    inner = join_items((part for part, _ in parts), COMMA)
    return seq(opened("{"), SPACE, kind, inner, SPACE, closed("}"))


def _build_nested_call(name: str, tool: Tool, keys: CallKeys, wrapper: bool) -> Expression:
    outer, _, name_key = keys.name.partition(".")
    arguments_key = keys.arguments.rpartition(".")[2]
    inner = seq(
        "{",
        SPACE,
        member(name_key, _name(name)),
        COMMA,
        member(arguments_key, call_arguments(tool)),
        SPACE,
        "}",
    )
    ids = seq(
        *(
            optional(_id(key, numbers) + COMMA)
            for key, numbers in ((keys.id, False), (keys.made_id, True))
            if key and "." not in key
        )
    )
    return seq(opened("{"), SPACE, ids, member(outer, inner), SPACE, closed("}"))


def _build_named_call(name: str, tool: Tool, keys: CallKeys, wrapper: bool) -> Expression:
    ids = [
        optional(seq(_id(key, numbers), SPACE, optional("," + SPACE)))
        for key, numbers in ((keys.id, False), (keys.made_id, True))
        if key
    ]
    value = call_arguments(tool)
    if keys.arguments:
        value = member(keys.arguments, value)
    if keys.arguments or ids:
        value = seq("{", SPACE, join_items([*ids, value], SPACE), SPACE, "}")
    return seq(
        opened("{"), SPACE, '"', named(name), '"', SPACE, ":", SPACE, value, SPACE, closed("}")
    )
