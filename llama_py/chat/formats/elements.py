"""Arguments as nested elements named like their properties.

common/parsers/minimax-m3.cpp; chat-peg-parser.cpp:common_chat_peg_minimax_m3_mapper.
"""

from __future__ import annotations

from llama_py.chat import answer as tags
from llama_py.chat.answer import ChatAnswer, ToolCall, escape_json, quote_json
from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import (
    Schema,
    alternatives,
    depth_within,
    kind,
    may_be_text,
    members,
    self_contained,
    target,
    tool_parameters,
)
from llama_py.chat.peg.found import TaggedPart
from llama_py.chat.peg.leaves import END, rest, text_until
from llama_py.chat.peg.named import rule, tag, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    choice,
    join_items,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import of_schema

NS = "]<]minimax[>["
THINK, THOUGHT = "<mm:think>", "</mm:think>"
CALL, CALLED = f"{NS}<tool_call>", f"{NS}</tool_call>"
OBJECT, ARRAY, ITEM = "arg-object", "arg-array", "arg-item"
VALUES = (tags.ARG_VALUE, tags.ARG_STRING, OBJECT, ARRAY)
MAX_DEPTH = 8  # maximum nesting of elements; deeper values are JSON


def build_form(asked: AnswerRequest) -> AnswerForm:
    return AnswerForm(
        _root(asked),
        form.prompt_continuation(asked, asked.prompt + THINK, THOUGHT),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=(NS, "<tool_call>", "</tool_call>", THINK, THOUGHT),
        thinking=(THINK, (THOUGHT,)),
        read=read,
    )


def _root(asked: AnswerRequest) -> Expression:
    thoughts: Expression = NOTHING
    if asked.reasoning:
        inner = text_until(THOUGHT)
        block = seq(THINK, inner, THOUGHT)
        if asked.thinking:
            block = seq(THINK, SPACE, form.reasoning(inner), THOUGHT)
        thoughts = form.thoughts(optional(choice(block, THOUGHT)))
    start = lit(asked.prompt.partition(THINK)[0]) + thoughts
    if not asked.tools:
        said = form.content(rest()) if asked.schema is None else form.json_content(asked.schema)
        return seq(start, said, END)
    one = choice(*(tool_rule(name, _call(name, tool)) for name, tool in iterate_tools(asked)))
    several = one + repetition(SPACE + one) if asked.parallel else one
    calls = trigger("tool call", seq(CALL, SPACE, several, SPACE, CALLED))
    return seq(start, form.content_then_calls(asked, form.content(text_until(CALL)), calls), END)


def _call(name: str, tool: form.Tool) -> Expression:
    schema = tool_parameters(tool)
    inner = _members(schema, f"argument {name}", MAX_DEPTH) if kind(schema) == "object" else NOTHING
    opened = form.opened(seq(f'{NS}<invoke name="', form.named(name), '">'))
    return form.call(seq(opened, SPACE, inner, SPACE, form.closed(f"{NS}</invoke>")))


def _members(schema: Schema, name: str, depth: int) -> Expression:
    required: list[Expression] = []
    others: list[Expression] = []
    for one in members(schema):
        opened = form.argument_opened(seq(f"{NS}<", form.argument_named(one.name), ">"))
        inner = _value(one.schema, f"{name} {one.name}", f"{NS}</{one.name}>", depth)
        found = rule(f"{name} {one.name}", form.argument(opened + inner))
        (required if one.required else others).append(found)
    found_all = join_items(required, SPACE)
    return found_all + repetition(SPACE + choice(*others)) if others else found_all


def _value(schema: Schema, name: str, close: str, depth: int) -> Expression:
    end = form.argument_closed(close)
    if may_be_text(schema, schema):
        return form.string(bare(schema, close)) + end
    if "$ref" in schema:
        found, depth = target(schema, schema), depth_within(schema, depth)
        schema = self_contained(found, schema) if found is not None and depth else schema
    each_kind = alternatives(schema)
    if each_kind is not None:
        return choice(
            *(
                _value(self_contained(one, schema), f"{name} {i}", close, depth)
                for i, one in enumerate(each_kind)
            )
        )
    what = kind(schema)
    if what == "object" and schema.get("properties") and depth:
        return seq(tag(OBJECT, _members(schema, name, depth - 1)), SPACE, end)
    items = schema.get("items", {})
    if what == "array" and isinstance(items, dict) and "$ref" not in schema and depth:
        inner = _value(self_contained(items, schema), f"{name} item", f"{NS}</item>", depth - 1)
        item = rule(f"{name} item", tag(ITEM, f"{NS}<item>" + inner))
        return seq(tag(ARRAY, repetition(SPACE + item)), SPACE, end)
    return form.value(of_schema(schema)) + end


def read(found: tuple[TaggedPart, ...]) -> ChatAnswer:
    """Build the response, with objects and arrays from their elements."""
    return tags.build_answer(found, _parse_call)


def _parse_call(one: TaggedPart) -> ToolCall | None:
    name = one.find_first(tags.TOOL_NAME)
    return None if name is None else ToolCall(name.text, _container(one, True, not one.partial))


def _direct_parts(one: TaggedPart, name: str) -> list[TaggedPart]:
    """Return the parts with this name that are not nested in another."""
    found = []
    for part in one.parts:
        found += [part] if part.name == name else _direct_parts(part, name)
    return found


def _container(one: TaggedPart, is_object: bool, closed: bool) -> str:
    texts = []
    for part in _direct_parts(one, tags.ARG if is_object else ITEM):
        text = _parse_value(part)
        if is_object:
            name = part.find_first(tags.ARG_NAME)
            text = f"{quote_json(name.text)}:{text}" if name is not None else ""
        texts += [text] if text else []
    first, last = "{}" if is_object else "[]"
    return first + ",".join(texts) + (last if closed else "")


def _parse_value(one: TaggedPart) -> str:
    value = next((part for part in one.parts if part.name in VALUES), None)
    if value is None:
        return ""
    closed = not one.partial
    if value.name in (OBJECT, ARRAY):
        return _container(value, value.name == OBJECT, closed)
    if value.name == tags.ARG_STRING:
        return '"' + escape_json(value.text) + ('"' if closed else "")
    return value.text
