"""Calls as `<invoke name="...">` with a tag for each parameter, which specifies if it is a string.

common/parsers/deepseek.cpp.
"""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, rest, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    choice,
    join_items,
    lit,
    never,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import of_schema

DSML = "｜DSML｜"
THINK, THOUGHT = "<think>", "</think>"
TURN = "<｜Assistant｜>"
CLOSE = f"</{DSML}parameter>"


def build_form(asked: AnswerRequest) -> AnswerForm:
    """Return the form. Later templates use another name for the block of calls, and start with
    the end tag of reasoning if reasoning is empty."""
    later = "function_calls" not in asked.source
    block = "tool_calls" if later else "function_calls"
    begin, end = f"<{DSML}{block}>", f"</{DSML}{block}>"
    return AnswerForm(
        _root(asked, later, begin, end),
        _continue_prompt(asked, later),
        bool(asked.tools) or asked.is_json,
        asked.lazy,
        (begin,),
        preserved=(DSML, THINK, THOUGHT),
        thinking=(THINK, (THOUGHT, begin)),
    )


def _continue_prompt(asked: AnswerRequest, later: bool) -> str:
    if later and asked.said is not None and not asked.said[0]:
        return TURN + THOUGHT + (asked.said[1] or "")
    return form.prompt_continuation(asked, TURN + THINK, THOUGHT)


def _root(asked: AnswerRequest, later: bool, begin: str, end: str) -> Expression:
    thoughts: Expression = NOTHING
    if asked.reasoning and asked.thinking:
        thoughts = optional(seq(THINK, form.reasoning(text_until(THOUGHT)), THOUGHT))
    elif asked.reasoning:
        empty = lit(THOUGHT) if later else seq(THINK, text_until(THOUGHT), THOUGHT)
        thoughts = optional(empty)
    thoughts = form.thoughts(thoughts)
    if not asked.tools:
        said = form.content(rest()) if asked.schema is None else form.json_content(asked.schema)
        return seq(TURN, thoughts, said, END)
    one = choice(*(tool_rule(name, _call(name, tool)) for name, tool in iterate_tools(asked)))
    several = one + repetition(SPACE + one) if asked.parallel else one
    calls = trigger("tool call", seq(begin, SPACE, several, SPACE, end))
    ends = ("\n\n" + begin, begin)
    said = seq(never(THINK), form.content(text_until(*ends)), SPACE)
    usual = thoughts + form.content_then_calls(asked, said, calls)
    if not (asked.reasoning and asked.thinking):
        return seq(TURN, usual, END)
    within = seq(THINK, form.reasoning(text_until(*ends, THOUGHT)), SPACE, calls)
    return seq(TURN, WithGrammar(choice(within, usual), usual), END)


def _call(name: str, tool: form.Tool) -> Expression:
    required: list[Expression] = []
    others: list[Expression] = []
    for one in parameters(tool):
        text = one.may_be_text
        kind = f'" string="{"true" if text else "false"}">'
        start = seq(f'<{DSML}parameter name="', form.argument_named(one.name), kind)
        inner = form.string(bare(one.schema, CLOSE)) if text else form.value(of_schema(one.schema))
        whole = seq(form.argument_opened(start), inner, form.argument_closed(CLOSE))
        found = rule(f"argument {name} {one.name}", form.argument(whole))
        (required if one.required else others).append(found)
    inner = join_items(required, SPACE)
    if others:
        inner = inner + repetition(SPACE + choice(*others))
    opened = form.opened(seq(f'<{DSML}invoke name="', form.named(name), '">\n'))
    return form.call(seq(opened, inner, SPACE, form.closed(f"</{DSML}invoke>")))
