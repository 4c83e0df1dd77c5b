"""Calls in Python syntax: `[name(key="value")]` (common/parsers/lfm2.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, rest, text_until
from llama_py.chat.peg.named import trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    choice,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import DOUBLE, PYTHON, SINGLE, of_schema

CALL, CALLED = "<|tool_call_start|>", "<|tool_call_end|>"
LIST = ("<|tool_list_start|>", "<|tool_list_end|>")
THINK, THOUGHT = "<think>", "</think>"
ALIKE = {"string", "integer", "number"}  # types whose JSON is Python
TURN = "<|im_start|>assistant\n"


def build_form(asked: AnswerRequest) -> AnswerForm:
    thoughts: Expression = NOTHING
    if asked.reasoning and THINK in asked.source:
        thoughts = optional(seq(THINK, form.reasoning(text_until(THOUGHT)), THOUGHT))
    start = lit(TURN) + form.thoughts(thoughts)
    holds = asked.is_json or bool(asked.tools)
    if asked.tools:
        one = choice(*(tool_rule(name, _call(tool, name)) for name, tool in iterate_tools(asked)))
        several = one + repetition(seq(",", SPACE, one)) if asked.parallel else one
        calls = trigger("tool call", seq(CALL + "[", SPACE, several, SPACE, "]" + CALLED))
        root = seq(
            start, form.content_then_calls(asked, form.content(text_until(CALL)), calls), END
        )
    elif asked.schema is not None:
        root = seq(start, form.json_content(asked.schema), END)
    else:
        root = seq(start, form.content(rest()), END)
    lists = LIST if LIST[0] in asked.source else ()
    return AnswerForm(
        root,
        form.prompt_continuation(asked, TURN + THINK, THOUGHT),
        holds,
        asked.lazy,
        (CALL,),
        preserved=(CALL, CALLED, THINK, THOUGHT, *lists),
        thinking=(THINK, (THOUGHT,)),
    )


def _call(tool: form.Tool, name: str) -> Expression:
    each_argument = []
    for one in parameters(tool):
        text = choice(DOUBLE, SINGLE) if one.schema.get("type") == "string" else PYTHON
        if one.types <= ALIKE:
            text = WithGrammar(text, of_schema(one.schema))
        start = form.argument_opened(form.argument_named(one.name) + "=")
        found = seq(start, form.value(text), form.argument_closed(NOTHING))
        each_argument.append((form.argument(found), one.required))
    inner = form.any_order(each_argument, seq(",", SPACE))
    opened = form.opened(form.named(name) + "(")
    return form.call(seq(opened, SPACE, form.arguments(inner), SPACE, form.closed(")")))
