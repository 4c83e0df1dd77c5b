"""Responses in channels: analysis, commentary, and final (common/parsers/gpt-oss.cpp and
llm-jp-harmony.cpp)."""

from __future__ import annotations

from dataclasses import dataclass

from llama_py.chat.formats import form
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, Tool, iterate_tools, tool_rule
from llama_py.chat.peg.leaves import characters, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    optional,
    repetition,
    seq,
)

START, END, CHANNEL, MESSAGE = "<|start|>assistant", "<|end|>", "<|channel|>", "<|message|>"
CONSTRAIN = "<|constrain|>"
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
FINAL = f"{CHANNEL}final"


@dataclass(frozen=True)
class Dialect:
    """Differences between models with channels.

    spaced   spaces after control tokens belong to them; one in front of a message
    several  a response may have several calls, as messages
    strays   a message may begin with another channel, or call an unknown tool: both are skipped
    """

    spaced: bool = False
    several: bool = False
    strays: bool = True

    @property
    def gap(self) -> Expression:
        """Spaces after a control token."""
        return repetition(" ") if self.spaced else NOTHING

    @property
    def start(self) -> Expression:
        return seq("<|start|>", self.gap, "assistant")

    @property
    def message(self) -> Expression:
        return seq(MESSAGE, optional(" ") if self.spaced else NOTHING)

    def channel(self, name: str) -> Expression:
        return seq(CHANNEL, self.gap, name)

    @property
    def stray(self) -> Expression:
        """Another channel before a channel, which a grammar does not need to allow."""
        found = self.channel("commentary") + optional(" to=assistant")
        return WithGrammar(optional(found), NOTHING) if self.strays else NOTHING

    @property
    def content_type(self) -> Expression:
        """Type of a message's content; a grammar allows JSON only."""
        kind = seq(SPACE, optional(CONSTRAIN + self.gap), characters("[A-Za-z0-9_-]"))
        json = seq(CONSTRAIN, self.gap, "json")
        return WithGrammar(optional(kind), optional(choice(" json", " " + json, json)))

    @property
    def triggers(self) -> tuple[str, str]:
        """Patterns of a call's start."""
        gap = r"\s*" if self.spaced else ""
        start = rf"<\|start\|>{gap}assistant"
        channel = rf"<\|channel\|>{gap}(?:commentary|analysis)"
        return rf"{start}(\s+to)", rf"{start}({channel}\s+to)"


HARMONY = Dialect()
LLM_JP = Dialect(spaced=True, several=True, strays=False)


def build_form(asked: AnswerRequest) -> AnswerForm:
    return _form(asked, HARMONY)


def build_llm_jp_form(asked: AnswerRequest) -> AnswerForm:
    return _form(asked, LLM_JP)


def _form(asked: AnswerRequest, dialect: Dialect) -> AnswerForm:
    return AnswerForm(
        _root(asked, dialect),
        form.prompt_continuation(asked, START + ANALYSIS, f"{END}{START}{FINAL}{MESSAGE}"),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        (),
        dialect.triggers,
        preserved=(CHANNEL, CONSTRAIN, MESSAGE, "<|start|>", END),
        thinking=(ANALYSIS, (END,)),
    )


def _root(asked: AnswerRequest, dialect: Dialect) -> Expression:
    inner, start = text_until(END), dialect.start
    thoughts = seq(dialect.stray, dialect.channel("analysis"), dialect.message)
    if asked.reasoning:
        analysis = rule("analysis", seq(thoughts, form.reasoning(inner), END))
    else:
        analysis = rule("analysis", form.content(seq(thoughts, inner, END)))
    comment = dialect.channel("commentary") + dialect.message
    preamble = rule("preamble", seq(comment, form.content(inner), END))
    said = form.content(inner) if asked.schema is None else form.json_content(asked.schema)
    kind = NOTHING if asked.schema is None else dialect.content_type
    head = seq(dialect.stray, dialect.channel("final"), kind, dialect.message)
    final = rule("final", head + said)
    channel = choice(dialect.channel("commentary"), dialect.channel("analysis"))
    before = form.thoughts(repetition(start + rule("any", choice(preamble, analysis))))
    if not asked.tools:
        # Calls of unknown tools.
        other = rule("other", atomic(seq(optional(channel), " to=", inner, END)))
        skips = dialect.strays and asked.schema is None
        return seq(before, start, choice(final, other) if skips else final)
    one = choice(
        *(
            tool_rule(name, _call(name, tool, channel, dialect))
            for name, tool in iterate_tools(asked)
        )
    )
    several = dialect.several and asked.parallel
    calls = trigger("tool call", one + repetition(END + start + one) if several else one)
    return seq(before, start, calls if asked.required else choice(calls, final))


def _call(name: str, tool: Tool, channel: Expression, dialect: Dialect) -> Expression:
    """Return a call with the recipient before or after the channel."""
    to = seq(" to=functions.", form.named(name))
    arguments, rest = form.call_arguments(tool), dialect.content_type + dialect.message
    in_role = seq(form.opened(seq(to, channel, rest)), arguments)
    in_channel = seq(form.opened(seq(channel, to, rest)), arguments)
    return choice(form.call(in_role), form.call(in_channel))
