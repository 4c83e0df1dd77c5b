"""Requirements for a response, and the form that a template family gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llama_py.chat import answer as tags
from llama_py.chat.answer import ChatAnswer, Reader
from llama_py.chat.formats.schema import tool_parameters
from llama_py.chat.peg.found import TaggedPart
from llama_py.chat.peg.named import rule, tag
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    join_items,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import of_schema

Tool = Mapping[str, Any]


@dataclass(frozen=True)
class AnswerRequest:
    """Requirements for a response.

    tools      tools that it may call, in the form of the OpenAI API
    required   it must call one
    parallel   it may call several
    schema     JSON schema of the response; {}: any object; None: anything
    reasoning  reasoning is separated from content
    thinking   reasoning is enabled for the model
    prompt     the end of the prompt that the response begins with
    source     the template's
    variables  the template's
    said       the message to continue: its reasoning and its content (None: without content, so
               reasoning continues)
    """

    tools: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = False
    schema: Mapping[str, Any] | None = None
    reasoning: bool = True
    thinking: bool = True
    prompt: str = ""
    source: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    said: tuple[str, str | None] | None = None

    @property
    def auto(self) -> bool:
        """True if it may call a tool, but need not."""
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
    """Form of a response.

    root      expression of the prompt's end and the response
    prompt    the prompt's end
    grammar   a grammar applies; lazy: only after a trigger
    words     triggers; patterns: triggers as regular expressions, or their first groups
    preserved  control tokens that must remain visible
    stops     texts that end a response
    thinking  tags around reasoning, which has no triggers
    late_ids  the id of a call follows its arguments
    drops     text after the response is dropped
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


def _make_tag(name: str) -> Tagged:
    return lambda item: tag(name, item)


def _make_atomic_tag(name: str) -> Tagged:
    """Name a part that is found only when complete."""
    return lambda item: atomic(tag(name, item))


# Parts that expressions find in a response: reasoning, content, a call and its parts.
content, reasoning, call = map(_make_tag, (tags.CONTENT, tags.REASONING, tags.TOOL))
opened, closed = map(_make_atomic_tag, (tags.TOOL_OPEN, tags.TOOL_CLOSE))
named, identified = map(_make_atomic_tag, (tags.TOOL_NAME, tags.TOOL_ID))
arguments, argument = map(_make_tag, (tags.TOOL_ARGS, tags.ARG))
argument_opened, argument_closed = map(_make_atomic_tag, (tags.ARG_OPEN, tags.ARG_CLOSE))
argument_named = _make_atomic_tag(tags.ARG_NAME)
value, string = map(_make_tag, (tags.ARG_VALUE, tags.ARG_STRING))


def thoughts(item: Expression) -> Expression:
    """Return reasoning, which a response's grammar omits: it has a separate constraint."""
    return WithGrammar(item, NOTHING)


def json_content(schema: Mapping[str, Any]) -> Expression:
    """Return content as JSON of a schema; it may also be in a fence, with any space around."""
    value = content(of_schema(schema))
    fenced = seq("```json", SPACE, value, SPACE, "```")
    return rule("response format", WithGrammar(seq(SPACE, choice(fenced, value), SPACE), value))


def content_then_calls(asked: AnswerRequest, said: Expression, calls: Expression) -> Expression:
    """Return calls after content. A required call has no content before it; with a schema the
    response is calls or JSON."""
    if asked.lazy:
        return said + optional(calls)
    if asked.required:
        return seq(WithGrammar(said + SPACE, NOTHING), calls)
    assert asked.schema is not None
    return WithGrammar(SPACE, NOTHING) + choice(calls, json_content(asked.schema))


def any_order(arguments: Sequence[tuple[Expression, bool]], between: Expression) -> Expression:
    """Return arguments, each with a flag if it is required. The parser accepts any order and
    missing arguments; the grammar starts with required arguments."""
    if not arguments:
        return NOTHING
    required = [one for one, is_required in arguments if is_required]
    others = [one for one, is_required in arguments if not is_required]
    found = join_items(required, between)
    if others:
        other = choice(*others)
        more = repetition(between + other)
        found = found + more if required else optional(other + more)
    one = choice(*(one for one, _ in arguments))
    return WithGrammar(optional(one + repetition(between + one)), found)


def iterate_tools(asked: AnswerRequest) -> Iterator[tuple[str, Tool]]:
    """Yield the tools with their names."""
    for tool in asked.tools:
        yield tool["function"]["name"], tool


def call_arguments(tool: Tool) -> Expression:
    """Return an expression of a call's arguments as JSON."""
    return arguments(of_schema(tool_parameters(tool)))


def tool_rule(name: str, item: Expression | str) -> Expression:
    return rule(f"tool {name}", item)


def prompt_continuation(asked: AnswerRequest, start: str, between: str) -> str:
    """Return the prompt's end of a continued message, with reasoning after `start`."""
    if asked.said is None:
        return asked.prompt
    thoughts, said = asked.said
    return start + thoughts + ("" if said is None else between + said)
