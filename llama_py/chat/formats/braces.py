"""Calls as `call:NAME{key:<|"|>value<|"|>}`, with a special brace syntax.

common/parsers/gemma4.cpp; chat-peg-parser.cpp:common_chat_peg_gemma4_mapper.
"""

from __future__ import annotations

import json

from llama_py.chat import answer as tags
from llama_py.chat.answer import ChatAnswer, ToolCall, escape_json
from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import (
    Schema,
    alternatives,
    depth_within,
    kind,
    members,
    self_contained,
    target,
    tool_parameters,
)
from llama_py.chat.peg.found import TaggedPart
from llama_py.chat.peg.leaves import characters, text_until
from llama_py.chat.peg.named import NamedRule, rule, tag, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    Later,
    WithGrammar,
    choice,
    join_items,
    lit,
    never,
    optional,
    peek,
    repetition,
    seq,
)
from llama_py.chat.peg.values import BOOLEAN, NULL, NUMBER, of_schema

MAX_DEPTH = 8  # maximum nesting of values with enforced schemas
TURN, QUOTE = "<|turn>model\n", '<|"|>'
CHANNEL, LEFT = "<|channel>", "<channel|>"
THOUGHT = f"{CHANNEL}thought"
CALL, CALLED = "<|tool_call>", "<tool_call|>"

TEXT = tag("braces text", text_until(QUOTE))
STRING = tag("braces string", seq(QUOTE, TEXT, QUOTE))
KEY = tag("braces key", tag("braces name", characters("[^:}]")) + ":")
DICT: Expression
LIST: Expression
VALUE = NamedRule(
    "braces value",
    tag(
        "braces value",
        Later(
            lambda: choice(
                STRING, DICT, LIST, *(tag("braces plain", one) for one in (NUMBER, BOOLEAN, NULL))
            )
        ),
    ),
)


def _items(one: Expression, first: str, last: str) -> Expression:
    items = seq(one, repetition(seq(",", SPACE, one)), SPACE, last)
    return seq(first, SPACE, choice(last, items))


_MEMBER = tag("braces member", seq(KEY, SPACE, VALUE))
DICT = rule("braces object", tag("braces object", _items(_MEMBER, "{", "}")))
LIST = rule("braces array", tag("braces array", _items(VALUE, "[", "]")))


def _object(schema: Schema, depth: int) -> Expression:
    """Return an expression of an object for a grammar: required members in order, then others."""
    required: list[Expression] = []
    others: list[Expression] = []
    for one in members(schema):
        (required if one.required else others).append(f"{one.name}:" + _value(one.schema, depth))
    comma = seq(",", SPACE)
    found = join_items(required, comma)
    if others:
        other = choice(*others)
        more = repetition(comma + other)
        found = found + more if required else optional(other + more)
    return seq("{", SPACE, found, SPACE, "}")


def _value(schema: Schema, depth: int) -> Expression:
    """Return an expression of a schema's value for a grammar."""
    if "$ref" in schema:
        found = target(schema, schema)
        depth = depth_within(schema, depth - 1) if depth else 0
        return (
            _value(self_contained(found, schema), depth) if found is not None and depth else VALUE
        )
    each_kind = alternatives(schema)
    if each_kind is not None:
        return choice(*(_value(self_contained(one, schema), depth) for one in each_kind))
    what = kind(schema)
    if what in ("const", "enum"):
        values = [schema["const"]] if what == "const" else schema["enum"]
        if not all(isinstance(one, str | int | float | None) for one in values):
            return VALUE
        return choice(
            *(f"{QUOTE}{one}{QUOTE}" if isinstance(one, str) else json.dumps(one) for one in values)
        )
    if what == "object" and schema.get("properties") and depth:
        return _object(schema, depth - 1)
    items = schema.get("items")
    if what == "array" and isinstance(items, dict) and depth:
        return _items(_value(self_contained(items, schema), depth - 1), "[", "]")
    if what in ("integer", "number", "boolean", "null"):
        return of_schema(schema)
    if what == "string":
        return seq(QUOTE, bare(schema, QUOTE), QUOTE)
    return {"object": DICT, "array": LIST}.get(what, VALUE)


def build_form(asked: AnswerRequest) -> AnswerForm:
    start = TURN if asked.prompt == TURN else ""
    holds = asked.is_json or bool(asked.tools)
    prompt = form.prompt_continuation(asked, f"{start}{THOUGHT}\n", LEFT)
    return AnswerForm(
        _root(asked),
        prompt,
        holds,
        asked.lazy,
        (CALL,),
        preserved=(CHANNEL, LEFT, CALL, CALLED, "<|turn>"),
        thinking=(THOUGHT, (LEFT,)),
        drops=True,
        read=read,
    )


def _root(asked: AnswerRequest) -> Expression:
    block: Expression
    if asked.reasoning:
        block = seq(THOUGHT, SPACE, form.reasoning(text_until(LEFT)), LEFT)
    else:
        block = form.content(seq(THOUGHT, SPACE, text_until(LEFT), LEFT))
    # Channels may be started repeatedly before one is used.
    empty = WithGrammar(repetition(lit(CHANNEL) + never("thought")), NOTHING)
    thought = choice(seq(peek(CHANNEL), empty, rule("thought", block)), never(CHANNEL))
    start, before = optional(TURN), form.thoughts(thought)
    if asked.schema is not None and not asked.tools:
        return seq(start, before, form.json_content(asked.schema))
    if not asked.tools:
        return seq(
            start, repetition(rule("message", thought + form.content(text_until(CHANNEL, LEFT))), 1)
        )
    one = choice(
        *(
            tool_rule(
                name,
                form.call(
                    seq(
                        form.opened(form.named(name) + peek("{")),
                        form.arguments(
                            WithGrammar(DICT, _object(tool_parameters(tool), MAX_DEPTH))
                        ),
                    )
                ),
            )
            for name, tool in iterate_tools(asked)
        )
    )
    several = repetition(seq(f"{CALL}call:", one, CALLED), 1, -1 if asked.parallel else 1)
    calls = trigger("tool call", several)
    if not asked.lazy:
        return seq(start, before, form.content_then_calls(asked, NOTHING, calls))
    said = form.content(text_until(CHANNEL, LEFT, CALL))
    return seq(
        start, repetition(rule("message", thought + said)), text_until(CALL), optional(calls)
    )


def read(found: tuple[TaggedPart, ...]) -> ChatAnswer:
    """Build the response, with arguments as JSON."""
    return tags.build_answer(found, _parse_call)


def _parse_call(one: TaggedPart) -> ToolCall | None:
    name, inner = one.find_first(tags.TOOL_NAME), one.find_first(tags.TOOL_ARGS)
    if name is None or inner is None or name.partial:
        return None
    return ToolCall(name.text, _json(inner.parts[0]) if inner.parts else "")


def _json(one: TaggedPart) -> str:
    """Return the complete part of a value as JSON."""
    kind = one.name.removeprefix("braces ")
    if not one.text:
        return ""
    inner = [_json(part) for part in one.parts]
    if kind == "text":
        return escape_json(one.text)
    if kind == "name":
        return one.text
    if kind == "string":
        return '"' + "".join(inner[:1]) + ("" if one.partial else '"') if inner else '"'
    if kind == "key":
        return '"' + escape_json("".join(inner[:1])) + ("" if one.partial else '":')
    if kind in ("object", "array"):
        first, last = "{}" if kind == "object" else "[]"
        return first + ",".join(inner) + ("" if one.partial else last)
    if kind in ("value", "member"):
        return "".join(inner)
    return one.text
