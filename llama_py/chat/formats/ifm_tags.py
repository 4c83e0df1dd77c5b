"""Reasoning in tags of the requested effort, calls as tagged arguments or JSON in one section
(common/parsers/k2-horizon.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.arg_keys import KeyMarks, keyed_call
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.json_calls import CallKeys, json_call
from llama_py.chat.peg.leaves import rest, text_until
from llama_py.chat.peg.named import trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    choice,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.thinking import THINK_IFM, choose_tags

TURN = "<|ifm|im_start|>assistant\n"
SECTION = ("<ifm|tool_calls>", "</ifm|tool_calls>")
CALL = ("<ifm|tool_call>", "</ifm|tool_call>")
KEY = ("<ifm|arg_key>", "</ifm|arg_key>")
TYPE = ("<ifm|arg_type>", "</ifm|arg_type>")
VALUE = ("<ifm|arg_value>", "</ifm|arg_value>")
FORMAT = "tool_call_format"  # variable of the template: xml, xml_typed or json


def build_form(asked: AnswerRequest) -> AnswerForm:
    tags = choose_tags(asked.source, THINK_IFM, asked.variables) or THINK_IFM
    start, ends = tags.start, tags.ends
    return AnswerForm(
        _root(asked, start, ends),
        form.prompt_continuation(asked, f"{TURN}{start}\n", ends[0]),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        (SECTION[0],),
        preserved=(*ends, start, *SECTION, *CALL, *KEY, *TYPE, *VALUE),
        thinking=(start, ends),
        drops=True,
    )


def _root(asked: AnswerRequest, start: str, ends: tuple[str, ...]) -> Expression:
    inner = text_until(*ends)

    def block(body: Expression) -> Expression:
        return optional(seq(start, SPACE, body, choice(*ends)))

    thoughts: Expression = NOTHING
    if asked.reasoning:
        thoughts = block(form.reasoning(inner))
    elif asked.schema is not None:
        thoughts = block(inner)
    elif asked.required:
        thoughts = form.content(block(inner))
    before = lit(TURN) + form.thoughts(thoughts)
    if asked.tools:
        said = NOTHING if asked.required else form.content(text_until(SECTION[0]))
        return before << form.content_then_calls(asked, said, _calls(asked))
    said = form.content(rest()) if asked.schema is None else form.json_content(asked.schema)
    return before << said


def _calls(asked: AnswerRequest) -> Expression:
    one = choice(
        *(tool_rule(name, _call(asked, name, tool)) for name, tool in iterate_tools(asked))
    )
    several = one + repetition(SPACE + one) if asked.parallel else one
    return trigger("tool calls", seq(SECTION[0], SPACE, several, SPACE, SECTION[1]))


def _call(asked: AnswerRequest, name: str, tool: form.Tool) -> Expression:
    how = asked.variables.get(FORMAT)
    if how == "json":
        return seq(CALL[0], SPACE, json_call(name, tool, CallKeys()), SPACE, CALL[1])
    kind: Expression = NOTHING
    if how == "xml_typed":  # optional: models omit it
        kind = optional(seq(TYPE[0], text_until(TYPE[1]), TYPE[1], SPACE))
    marks = KeyMarks(CALL, KEY, VALUE, lit("\n"), kind, quoted=False)
    return keyed_call(name, tool, marks)
