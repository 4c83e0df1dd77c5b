"""Tool calls in a separate section: by an id that has the tool's name, or in nested tags.

common/parsers/kimi-k2.cpp and kimi-k3.cpp.
"""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, characters, rest, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    Expression,
    WithGrammar,
    choice,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import of_schema

THINK, THOUGHT = "<think>", "</think>"
BEGIN, STOP = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALLED = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
TURN = "<|im_assistant|>assistant<|im_middle|>"


def build_id_form(asked: AnswerRequest) -> AnswerForm:
    """Return a form of `functions.NAME:0` with arguments. A call may be in unclosed reasoning."""
    thoughts: Expression = NOTHING
    if asked.reasoning:
        inner = form.reasoning(text_until(THOUGHT, BEGIN, CALL))
        thoughts = optional(seq(THINK, inner, optional(THOUGHT)))
    start = lit(TURN) + form.thoughts(thoughts)
    root = seq(start, form.content(rest()), END)
    if asked.tools:
        tools = []
        for name, tool in iterate_tools(asked):
            id = form.identified(seq("functions.", form.named(name), ":", characters("[0-9]")))
            tools.append(
                tool_rule(
                    name,
                    form.call(
                        seq(
                            form.opened(id + ARGUMENTS),
                            form.call_arguments(tool),
                            form.closed(optional(CALLED)),
                        )
                    ),
                )
            )
        several = repetition(seq(CALL, choice(*tools)), 1, -1 if asked.parallel else 1)
        calls = seq(optional(BEGIN), trigger("tool call", several + optional(STOP)))
        said = form.content(text_until(BEGIN, CALL))
        root = seq(start, form.content_then_calls(asked, said, calls), END)
    return AnswerForm(
        root,
        form.prompt_continuation(asked, TURN + THINK, THOUGHT),
        bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=(BEGIN, STOP, CALL, ARGUMENTS, CALLED, THINK, THOUGHT),
        thinking=(THINK, (THOUGHT, BEGIN, CALL)),
    )


SEP, EOM = "<|sep|>", "<|end_of_msg|>"
ATTRIBUTES = WithGrammar(text_until(SEP), characters('[ A-Za-z0-9_="]', 0, 40))  # such as an index


def _begin_mark(name: str) -> str:
    return f"<|open|>{name}{SEP}"


def _end_mark(name: str) -> str:
    return f"<|close|>{name}{SEP}"


MESSAGE = _begin_mark('message role="assistant"')


def build_nested_form(asked: AnswerRequest) -> AnswerForm:
    """Return a form of `<|open|>call tool="NAME" ...<|sep|>`, with a tag per argument."""
    think, thought, response = _begin_mark("think"), _end_mark("think"), _begin_mark("response")
    tools_begin, tools_end, end = _begin_mark("tools"), _end_mark("tools"), _end_mark("message")
    inner = text_until(thought, response)
    said = form.reasoning(inner) if asked.reasoning else form.content(inner)
    thoughts = form.thoughts(optional(seq(optional(think), said, optional(thought))))
    start = optional(MESSAGE) + thoughts
    content = seq(
        optional(response),
        form.content(text_until(_end_mark("response"), tools_begin, end)),
        optional(_end_mark("response")),
    )
    trailer = seq(optional(end), optional(EOM))
    root = seq(start, content, trailer, END)
    if asked.tools:
        one = choice(
            *(tool_rule(name, _nested_call(name, tool)) for name, tool in iterate_tools(asked))
        )
        several = repetition(one, 1, -1 if asked.parallel else 1)
        calls = trigger("tool call", seq(tools_begin, several, tools_end, trailer))
        root = seq(start, form.content_then_calls(asked, content, calls), trailer, END)
    return AnswerForm(
        root,
        form.prompt_continuation(asked, MESSAGE + think, thought + response),
        bool(asked.tools),
        asked.lazy,
        (tools_begin,),
        preserved=("<|open|>", "<|close|>", SEP, EOM),
        thinking=(think, (thought, response)),
    )


def _nested_call(name: str, tool: form.Tool) -> Expression:
    each_argument = []
    end = _end_mark("argument")
    for one in parameters(tool):
        kind = one.schema.get("type", "string")
        if kind == "string" or not isinstance(kind, str):
            value = form.string(bare(one.schema, end))
        else:
            value = WithGrammar(form.value(text_until(end)), of_schema(one.schema))
        found = rule(
            f"argument {name} {one.name}",
            form.argument(
                seq(
                    form.argument_opened('<|open|>argument key="'),
                    form.argument_named(one.name),
                    '"',
                    ATTRIBUTES,
                    SEP,
                    value,
                    form.argument_closed(end),
                )
            ),
        )
        each_argument.append((found, one.required))
    inner = form.any_order(each_argument, NOTHING)
    opened = seq('<|open|>call tool="', form.named(name), '"', ATTRIBUTES, SEP)
    return form.call(
        seq(form.opened(opened), form.arguments(inner), form.closed(_end_mark("call")))
    )
