"""Calls as a name, then `<arg_key>` and `<arg_value>` per argument, with content on either side
(common/parsers/ling3.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools
from llama_py.chat.formats.schema import parameters
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
from llama_py.chat.peg.values import of_schema

ROLE, END_ROLE = "<role>ASSISTANT</role>", "<|role_end|>"
THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
KEY, END_KEY, VALUE, END_VALUE = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"


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
        preserved=(THINK, THOUGHT, CALL, CALLED, KEY, END_KEY, VALUE, END_VALUE, END_ROLE),
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
    one = choice(*(rule(f"tool {name}", _call(name, tool)) for name, tool in iterate_tools(asked)))
    several = one + repetition(SPACE + one) if asked.parallel else one
    behind = tail if asked.lazy else WithGrammar(tail, NOTHING)
    calls = trigger("tool call", seq(several, SPACE, behind))
    said = optional(form.content(text_until(CALL)))
    return seq(start, form.content_then_calls(asked, said, calls), behind, END)


def _call(name: str, tool: form.Tool) -> Expression:
    close = form.argument_closed(END_VALUE)
    required: list[Expression] = []
    others: list[Expression] = []
    for one in parameters(tool):
        types, text = one.types, form.string(bare(one.schema, END_VALUE)) + close
        json = form.value(of_schema(one.schema)) + close
        inner = json if "string" not in types else text
        if "string" in types and types != {"string"}:
            inner = WithGrammar(choice(atomic(json), text), text)
        start = form.argument_opened(seq(KEY, form.argument_named(one.name), END_KEY))
        found = rule(
            f"argument {name} {one.name}",
            seq(SPACE, form.argument(seq(start, SPACE, VALUE, inner))),
        )
        (required if one.required else others).append(found)
    arguments = permutation(f"arguments {name}", required)
    if others:
        arguments = arguments + repetition(choice(*others))
    return form.call(
        seq(
            form.opened(seq(CALL, form.named(name), SPACE)),
            form.arguments(arguments),
            form.closed(SPACE + CALLED),
        )
    )
