"""What is asked of an answer, and the form that a family of templates gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llama_py.chat import answer as tags
from llama_py.chat.answer import ChatAnswer, Reader
from llama_py.chat.formats.schema import parameters_of
from llama_py.chat.peg.found import TaggedPart
from llama_py.chat.peg.named import rule, tag
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    As,
    Expression,
    atomic,
    choice,
    joined,
    many,
    optional,
    seq,
)
from llama_py.chat.peg.values import of_schema

Tool = Mapping[str, Any]


@dataclass(frozen=True)
class AnswerRequest:
    """What is asked of an answer.

    tools      that it may call, in the form of the OpenAI API; none, if it may call none
    required   whether it must call one
    parallel   whether it may call several
    schema     what it must be, as JSON; {}: any object; None: anything
    reasoning  whether thoughts are told from what is said
    thinking   whether the model was asked to think
    prompt     the end of the prompt that the answer begins with: what was rendered for it
    source     the template's
    said       the message that is to be continued: its thoughts and what it says (None: no
               thoughts are there, or no content: thoughts are continued)
    """

    tools: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = False
    schema: Mapping[str, Any] | None = None
    reasoning: bool = True
    thinking: bool = True
    prompt: str = ""
    source: str = ""
    said: tuple[str, str | None] | None = None

    @property
    def auto(self) -> bool:
        """Whether it may call a tool, but need not."""
        return bool(self.tools) and not self.required

    @property
    def lazy(self) -> bool:
        """Return True if any text may precede calls, and be the whole answer."""
        return self.auto and not self.is_json

    @property
    def is_json(self) -> bool:
        return self.schema is not None


def read(found: tuple[TaggedPart, ...]) -> ChatAnswer:
    return Reader().read(found)


@dataclass(frozen=True)
class AnswerForm:
    """How an answer is written.

    root      the expression of the prompt's end and the answer
    prompt    the prompt's end
    grammar   whether a grammar holds; lazy: only from one of the triggers on
    words     that are triggers; patterns: regular expressions that are, or their first group
    preserved  tokens that must be seen, though they are control tokens
    stops     texts that end an answer
    thinking  tags around thoughts, within which there are no triggers
    late_ids  whether the id of a call follows its arguments
    drops     whether what follows an answer is left out
    """

    root: Expression
    prompt: str = ""
    grammar: bool = False
    lazy: bool = False
    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    preserved: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    thinking: tuple[str, tuple[str, ...]] = ("", ())
    late_ids: bool = False
    drops: bool = False
    read: Callable[[tuple[TaggedPart, ...]], ChatAnswer] = field(default=read)


Tagged: TypeAlias = Callable[[Expression | str], Expression]


def _tagged(name: str) -> Tagged:
    return lambda item: tag(name, item)


def _whole(name: str) -> Tagged:
    """Name a part of which nothing is found before it is whole."""
    return lambda item: atomic(tag(name, item))


# What finds an expression as a part of an answer: thoughts, what is said, a call and its parts.
content, reasoning, call = map(_tagged, (tags.CONTENT, tags.REASONING, tags.TOOL))
opened, closed = map(_whole, (tags.TOOL_OPEN, tags.TOOL_CLOSE))
named, identified = map(_whole, (tags.TOOL_NAME, tags.TOOL_ID))
arguments, argument = map(_tagged, (tags.TOOL_ARGS, tags.ARG))
argument_opened, argument_closed = map(_whole, (tags.ARG_OPEN, tags.ARG_CLOSE))
argument_named = _whole(tags.ARG_NAME)
value, string = map(_tagged, (tags.ARG_VALUE, tags.ARG_STRING))


def thoughts(item: Expression) -> Expression:
    """Reasoning, which the grammar of an answer leaves out: it is a constraint of its own."""
    return As(item, NOTHING)


def json_of(schema: Mapping[str, Any]) -> Expression:
    """Content as JSON of a schema; it is also read within a fence, with any space around."""
    value = content(of_schema(schema))
    fenced = seq("```json", SPACE, value, SPACE, "```")
    return rule("response format", As(seq(SPACE, choice(fenced, value), SPACE), value))


def calls_after(asked: AnswerRequest, said: Expression, calls: Expression) -> Expression:
    """Calls after content. No content is written before a call that must be there; if a schema is
    given, the answer is calls or JSON."""
    if asked.lazy:
        return said + optional(calls)
    if asked.required:
        return seq(As(said + SPACE, NOTHING), calls)
    assert asked.schema is not None
    return As(SPACE, NOTHING) + choice(calls, json_of(asked.schema))


def any_order(arguments: Sequence[tuple[Expression, bool]], between: Expression) -> Expression:
    """Arguments, and whether each is required. They are read in any order, and may lack; a grammar
    has all that are required first."""
    if not arguments:
        return NOTHING
    required = [one for one, is_required in arguments if is_required]
    others = [one for one, is_required in arguments if not is_required]
    found = joined(required, between)
    if others:
        other = choice(*others)
        more = many(between + other)
        found = found + more if required else optional(other + more)
    one = choice(*(one for one, _ in arguments))
    return As(optional(one + many(between + one)), found)


def each(asked: AnswerRequest) -> Iterator[tuple[str, Tool]]:
    """The names of the tools, and the tools."""
    for tool in asked.tools:
        yield tool["function"]["name"], tool


def arguments_of(tool: Tool) -> Expression:
    """A call's arguments, all of them as JSON."""
    return arguments(of_schema(parameters_of(tool)))


def tool_rule(name: str, item: Expression | str) -> Expression:
    return rule(f"tool {name}", item)


def continued(asked: AnswerRequest, start: str, between: str) -> str:
    """The end of a prompt, of a message that goes on, with its thoughts behind `start`."""
    if asked.said is None:
        return asked.prompt
    thoughts, said = asked.said
    return start + thoughts + ("" if said is None else between + said)
