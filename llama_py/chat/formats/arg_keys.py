"""Calls as a name, then `<arg_key>` and `<arg_value>` per argument, with content on either side
(common/parsers/ling3.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import Parameter, parameters
from llama_py.chat.peg.leaves import END, text_until
from llama_py.chat.peg.named import permutation, rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    never,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import json_kinds, of_schema

ROLE, END_ROLE = "<role>ASSISTANT</role>", "<|role_end|>"
THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
KEY, VALUE = ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")


@dataclass(frozen=True)
class KeyMarks:
    """Marks of calls with a key and a value per argument.

    call, key, value  before and after a call, a key, a value
    gap     after a call's name
    kind    between a key and its value
    quoted  a value that may be a string, or of another type, may be a JSON string
    """

    call: tuple[str, str]
    key: tuple[str, str]
    value: tuple[str, str]
    gap: Expression = SPACE
    kind: Expression = NOTHING
    quoted: bool = True


MARKS = KeyMarks((CALL, CALLED), KEY, VALUE)


def build_form(asked: AnswerRequest) -> AnswerForm:
    prompt = form.prompt_continuation(asked, f"{ROLE}\n{THINK}", THOUGHT)
    if asked.said is not None:
        is_open = asked.said[1] is None
    else:  # the prompt may start or end reasoning
        is_open = prompt.rfind(THINK) > prompt.rfind(THOUGHT)
    return AnswerForm(
        _root(asked, is_open),
        prompt,
        bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=(THINK, THOUGHT, CALL, CALLED, *KEY, *VALUE, END_ROLE),
        stops=(END_ROLE,),
        thinking=(THINK, (THOUGHT, CALL)),
    )


def _root(asked: AnswerRequest, is_open: bool) -> Expression:
    inner = text_until(THOUGHT, CALL) if is_open else text_until(THOUGHT)
    thought = form.reasoning(inner) if asked.reasoning else form.content(inner)
    thoughts = form.thoughts(optional(seq(optional(THINK), thought, optional(THOUGHT))))
    start = optional(ROLE + SPACE) + thoughts
    tail = seq(optional(form.content(text_until(END_ROLE))), optional(END_ROLE))
    if not asked.tools:
        return seq(start, tail, END)
    tail = never(CALL) + tail  # without a broken call
    one = choice(
        *(tool_rule(name, keyed_call(name, tool, MARKS)) for name, tool in iterate_tools(asked))
    )
    several = one + repetition(SPACE + one) if asked.parallel else one
    behind = tail if asked.lazy else WithGrammar(tail, NOTHING)
    calls = trigger("tool call", seq(several, SPACE, behind))
    said = optional(form.content(text_until(CALL)))
    return seq(start, form.content_then_calls(asked, said, calls), behind, END)


def keyed_call(name: str, tool: form.Tool, marks: KeyMarks) -> Expression:
    """Return a call: its name, then a key and a value per argument, in any order if required."""
    required: list[Expression] = []
    others: list[Expression] = []
    for one in parameters(tool):
        opened = form.argument_opened(
            seq(marks.key[0], form.argument_named(one.name), marks.key[1])
        )
        whole = form.argument(seq(opened, SPACE, marks.kind, marks.value[0], _value(one, marks)))
        found = rule(f"argument {name} {one.name}", seq(SPACE, whole))
        (required if one.required else others).append(found)
    arguments = permutation(f"arguments {name}", required)
    if others:
        arguments = arguments + repetition(choice(*others))
    return form.call(
        seq(
            form.opened(seq(marks.call[0], form.named(name), marks.gap)),
            form.arguments(arguments),
            form.closed(SPACE + marks.call[1]),
        )
    )


def _value(one: Parameter, marks: KeyMarks) -> Expression:
    """Return an argument's value and its end. Values that may be strings are text; the parser reads
    other JSON of their types first."""
    close = form.argument_closed(marks.value[1])
    text = form.string(bare(one.schema, marks.value[1])) + close
    if "string" not in one.types:
        return form.value(of_schema(one.schema)) + close
    if one.types == {"string"}:
        return text
    json = of_schema(one.schema) if marks.quoted else choice(*json_kinds(one.types))
    return WithGrammar(choice(atomic(form.value(json) + close), text), text)
