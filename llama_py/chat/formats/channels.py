"""Responses in channels: analysis, commentary, and final (common/parsers/gpt-oss.cpp)."""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.peg.leaves import characters, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    lit,
    optional,
    repetition,
    seq,
)

START, END, CHANNEL, MESSAGE = "<|start|>assistant", "<|end|>", "<|channel|>", "<|message|>"
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
COMMENTARY, FINAL = f"{CHANNEL}commentary", f"{CHANNEL}final"
TRIGGERS = (
    r"<\|start\|>assistant(\s+to)",
    r"<\|start\|>assistant(<\|channel\|>(?:commentary|analysis)\s+to)",
)


def build_form(asked: AnswerRequest) -> AnswerForm:
    holds = asked.is_json or bool(asked.tools)
    return AnswerForm(
        _root(asked),
        form.prompt_continuation(asked, START + ANALYSIS, f"{END}{START}{FINAL}{MESSAGE}"),
        holds,
        asked.lazy,
        (),
        TRIGGERS,
        preserved=(CHANNEL, "<|constrain|>", MESSAGE, "<|start|>", END),
        thinking=(ANALYSIS, (END,)),
    )


def _root(asked: AnswerRequest) -> Expression:
    inner = text_until(END)
    # Some models start a channel with another one, which a grammar does not need to allow.
    stray = WithGrammar(optional(lit(COMMENTARY) + optional(" to=assistant")), NOTHING)
    thoughts = seq(stray, ANALYSIS)
    if asked.reasoning:
        analysis = rule("analysis", seq(thoughts, form.reasoning(inner), END))
    else:
        analysis = rule("analysis", form.content(seq(thoughts, inner, END)))
    kind = seq(SPACE, optional("<|constrain|>"), characters("[A-Za-z0-9_-]"))
    json = choice(" json", " <|constrain|>json", "<|constrain|>json")
    constrained = WithGrammar(optional(kind), optional(json))
    preamble = rule("preamble", seq(COMMENTARY + MESSAGE, form.content(inner), END))
    said = form.content(inner) if asked.schema is None else form.json_content(asked.schema)
    header = MESSAGE if asked.schema is None else constrained + MESSAGE
    final = rule("final", seq(stray, FINAL, header, said))
    channel = choice(COMMENTARY, f"{CHANNEL}analysis")
    before = form.thoughts(repetition(START + rule("any", choice(preamble, analysis))))
    if not asked.tools:
        # Calls of unknown tools.
        other = rule("other", atomic(seq(optional(channel), " to=", inner, END)))
        return seq(before, START, choice(final, other) if asked.schema is None else final)
    tools = []
    for name, tool in iterate_tools(asked):
        to = seq(" to=functions.", form.named(name))
        arguments = form.call_arguments(tool)
        in_role = seq(form.opened(seq(to, channel, constrained, MESSAGE)), arguments)
        in_channel = seq(form.opened(seq(channel, to, constrained, MESSAGE)), arguments)
        tools.append(tool_rule(name, choice(form.call(in_role), form.call(in_channel))))
    calls = trigger("tool call", choice(*tools))
    return seq(before, START, calls if asked.required else choice(calls, final))
