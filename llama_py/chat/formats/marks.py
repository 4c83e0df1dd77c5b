"""Response formats that differ only in delimiters, with JSON or tagged tool arguments.

Follows chat-auto-parser-generator.cpp; chat-diff-analyzer.cpp finds the delimiters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, Tool, iterate_tools, tool_rule
from llama_py.chat.formats.json_calls import CallKeys, json_calls
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, rest, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    join_items,
    lit,
    optional,
    optional_spaces,
    peek,
    repetition,
    seq,
)
from llama_py.chat.peg.values import of_schema

KEYS = CallKeys()


@dataclass(frozen=True)
class Marks:
    """Delimiters around the parts of a response.

    think, thought   before and after reasoning; without `think`, reasoning begins the response
    say, said        around content, always (wrapped: with reasoning only)
    calls            format of tool calls: `none`; `json` objects; a name, then JSON (`name`); or
                     a name, then each argument in tags (`tags`)
    section          around all calls; each_call: around each
    keys             keys of JSON calls
    name             around a call's name; then, before its arguments, `gap`; close: after them
    id               between name and arguments: before the id, and after it
    key, value       around an argument's name and its value
    wrapper          calls may also be in `{"type": "function", ...}`
    preserved, stops  like AnswerForm
    """

    think: str = ""
    thought: str = ""
    say: str = ""
    said: str = ""
    calls: Literal["none", "json", "name", "tags"] = "none"
    section: tuple[str, str] = ("", "")
    each_call: tuple[str, str] = ("", "")
    keys: CallKeys = KEYS
    name: tuple[str, str] = ("", "")
    gap: str = ""
    close: str = ""
    id: tuple[str, str] = ("", "")
    key: tuple[str, str] = ("", "")
    value: tuple[str, str] = ("", "")
    wrapper: bool = False
    preserved: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()

    @property
    def thinks(self) -> bool:
        return bool(self.thought)

    @property
    def shown_marks(self) -> tuple[str, ...]:
        """Delimiters in `preserved`, or all delimiters if it is empty."""
        marks = (
            self.think, self.thought, self.say, self.said, *self.section, *self.each_call,
            *self.name, self.gap, self.close, *self.key, *self.value, *self.id,
        )  # fmt: skip
        return self.preserved or tuple(dict.fromkeys(m.strip() for m in marks if m.strip()))


def build_marks_form(marks: Marks, asked: AnswerRequest) -> AnswerForm:
    """Return the response form for the given delimiters."""
    calls = asked.tools if marks.calls != "none" else ()
    asked = replace(asked, tools=calls)
    start = marks.section[0] or marks.each_call[0]
    words: tuple[str, ...] = (start,) if start else ()
    if words and marks.wrapper:
        words += ('{"type": "function",',)
    holds = asked.is_json or (bool(calls) and (asked.required or bool(start)))
    ends = (marks.thought.strip(),) if marks.thought.strip() else ()
    return AnswerForm(
        _root(marks, asked),
        _continue_prompt(marks, asked),
        holds,
        not asked.is_json and asked.auto,
        words,
        (),
        marks.shown_marks,
        marks.stops,
        (marks.think.strip(), ends),
        late_ids=bool(marks.keys.id) and marks.keys.order[-1:] == (marks.keys.id,),
    )


def _continue_prompt(marks: Marks, asked: AnswerRequest) -> str:
    if asked.said is None:
        return asked.prompt
    thoughts, said = asked.said
    found = asked.prompt
    if marks.think:
        found = found.partition(marks.think)[0] + marks.think + thoughts
        found += marks.thought if said is not None else ""
    return found + (said or "")


def _root(marks: Marks, asked: AnswerRequest) -> Expression:
    think = marks.think.strip()
    before = lit(asked.prompt.partition(think)[0] if think else asked.prompt)
    thoughts = _thoughts(marks, asked)
    if asked.tools:
        return before << _MADE[marks.calls](marks, asked, thoughts)
    if asked.schema is not None:
        answer = seq(optional(marks.say), form.json_content(asked.schema), optional(marks.said))
        return seq(before, SPACE, thoughts, answer, END)
    said = _build_content(marks, asked, thoughts)
    return before << said if marks.thinks else before + said


def _thoughts(marks: Marks, asked: AnswerRequest) -> Expression:
    if not asked.reasoning or not marks.thinks:
        return NOTHING
    end = marks.thought.strip()
    inner = form.reasoning(text_until(end))
    block = optional(seq(optional_spaces(marks.think), inner, optional_spaces(marks.thought)))
    # White space after the prompt's reasoning is not content.
    _, closed, behind = asked.prompt.rpartition(end)
    behind = behind.removeprefix(marks.thought.partition(end)[2])
    return form.thoughts(block + optional(behind) if closed and behind.isspace() else block)


def _build_content(marks: Marks, asked: AnswerRequest, thoughts: Expression) -> Expression:
    if not marks.say:
        return seq(thoughts, form.content(rest()), END)
    wrapped = seq(marks.say, form.content(text_until(marks.said)), marks.said, END)
    if asked.reasoning and marks.thinks:
        return thoughts + wrapped
    return form.content(text_until(marks.say)) + wrapped


def _json(marks: Marks, asked: AnswerRequest, thoughts: Expression) -> Expression:
    if not marks.section[0] and marks.each_call[0]:
        one = json_calls(marks.each_call, marks.keys, asked, marks.wrapper)
        several = repetition(one + SPACE, 1)  # parsed, even if only one is allowed
        single = several if asked.parallel else one + SPACE
        calls = trigger("tool calls", WithGrammar(several, single))
    else:
        calls = json_calls(marks.section, marks.keys, asked, marks.wrapper)
    if marks.say:
        said = optional(seq(marks.say, form.content(text_until(marks.said)), marks.said))
    else:
        said = optional(form.content(text_until(marks.section[0] or marks.each_call[0] or "{")))
    return _append_calls(asked, thoughts, said, calls)


def _build_named_calls(marks: Marks, asked: AnswerRequest, thoughts: Expression) -> Expression:
    tools = []
    for name, tool in iterate_tools(asked):
        inner = form.call_arguments(tool)
        tools.append(tool_rule(name, _function(marks, name, _id(marks), inner)))
    one: Expression = choice(*tools)
    if marks.each_call[0]:
        wrapped = seq(marks.each_call[0], one, marks.each_call[1])
        calls = trigger("tool call", _repeat_calls(wrapped, asked, SPACE))
        if marks.section[0]:
            end = lit(marks.section[1]) if marks.section[1] else END
            calls = trigger("tool calls", seq(marks.section[0], SPACE, calls, SPACE, end))
    else:
        inner = _repeat_calls(one, asked, lit(", "))
        calls = trigger("tool call", seq(marks.section[0], inner, marks.section[1]))
    return _append_calls(asked, thoughts, _content_before_calls(marks), calls)


def _build_tagged_calls(marks: Marks, asked: AnswerRequest, thoughts: Expression) -> Expression:
    tools = []
    for name, tool in iterate_tools(asked):
        inner, has_required = _arguments(marks, name, tool)
        ahead = peek(marks.key[0]) if marks.key[0] and has_required else None
        tools.append(tool_rule(name, _function(marks, name, _id(marks), inner, ahead)))
    one: Expression = choice(*tools)
    first, last = marks.section
    if marks.each_call[0]:
        wrapped = seq(marks.each_call[0], SPACE, one, SPACE, marks.each_call[1])
        calls = trigger("tool call", _repeat_calls(wrapped, asked, SPACE) + SPACE)
        if first:
            end = last + SPACE if last else END
            calls = trigger("tool calls", seq(first, SPACE, calls, SPACE, end))
    else:
        inner = _repeat_calls(one, asked, lit(", "))
        calls = trigger("tool call", seq(first, SPACE, inner, SPACE, last))
    return _append_calls(asked, thoughts, _content_before_calls(marks), calls)


_MADE = {"json": _json, "name": _build_named_calls, "tags": _build_tagged_calls}


def _content_before_calls(marks: Marks) -> Expression:
    start = marks.section[0] or marks.each_call[0]
    return optional(form.content(text_until(start) if start else NOTHING))


def _append_calls(
    asked: AnswerRequest, thoughts: Expression, said: Expression, calls: Expression
) -> Expression:
    """Return calls after reasoning and content."""
    return seq(thoughts, form.content_then_calls(asked, said, calls), END)


def _repeat_calls(one: Expression, asked: AnswerRequest, between: Expression) -> Expression:
    return one + repetition(between + one) if asked.parallel else one


def _id(marks: Marks) -> Expression | None:
    before, after = marks.id
    if not before or not after:
        return None
    found = before + form.identified(text_until(after))
    return optional(found) + after if marks.calls == "name" else optional(found + after)


def _function(
    marks: Marks,
    name: str,
    id: Expression | None,
    inner: Expression,
    ahead: Expression | None = None,
) -> Expression:
    """Return the expression of a tool call: name, then arguments.

    `ahead` is the start of the arguments. It must follow before the name counts, since one tool's
    name may be a prefix of another's.
    """
    start: Expression = form.opened(seq(marks.name[0], form.named(name), marks.name[1]))
    if marks.gap:
        start = seq(start, SPACE, marks.gap)
    alone = not marks.name[1] and id is None and ahead is None
    if marks.name[1]:
        found = seq(start, id or NOTHING, SPACE, inner)
    elif id is not None:
        found = seq(atomic(start + id), SPACE, inner)
    elif ahead is not None:
        found = seq(atomic(seq(start, SPACE, ahead)), inner)
    else:
        found = seq(start, SPACE, inner)
    if marks.close:
        found = seq(found, SPACE, form.closed(marks.close))
    elif marks.each_call[1]:
        found = found + form.closed(peek(SPACE + marks.each_call[1]))
    else:
        found = found + form.closed(SPACE)
    return atomic(found) if alone else found


def _arguments(marks: Marks, name: str, tool: Tool) -> tuple[Expression, bool]:
    """Return the expression of tagged arguments, and True if any argument is required.

    Required arguments are first and in order.
    """
    required: list[Expression] = []
    others: list[Expression] = []
    before, after = marks.value
    for one in parameters(tool):
        start = form.argument_opened(seq(marks.key[0], form.argument_named(one.name), marks.key[1]))
        text = one.may_be_text
        inner = form.string(bare(one.schema, after)) if text else form.value(of_schema(one.schema))
        whole = form.argument(seq(start, before, inner, form.argument_closed(after)))
        (required if one.required else others).append(rule(f"argument {name} {one.name}", whole))
    found = join_items(required, SPACE)
    if others:
        found = found + repetition(SPACE + choice(*others))
    return found, bool(required)
