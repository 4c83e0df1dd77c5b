"""Parsed response: content, reasoning, and tool calls.

chat-peg-parser.cpp:common_chat_peg_mapper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_py.chat.peg.found import TaggedPart

# Tags of expressions. Names of rules have a space, so they differ from all names of tools.
REASONING, CONTENT, TOOL = "reasoning", "content", "tool"
TOOL_OPEN, TOOL_CLOSE, TOOL_ID = "tool-open", "tool-close", "tool-id"
TOOL_NAME, TOOL_ARGS = "tool-name", "tool-args"
ARG, ARG_OPEN, ARG_CLOSE, ARG_NAME = "arg", "arg-open", "arg-close", "arg-name"
ARG_VALUE, ARG_STRING = "arg-value", "arg-string"

SPACES = " \t\n\v\f\r"
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.S)
_PARTS = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*"?|'[^'\\]*(?:\\.[^'\\]*)*(?P<ended>')?|\w+""", re.ASCII | re.S
)
_QUOTES = re.compile(r"\\.|\"", re.S)
_MEANT = {"\\'": "'", '"': '\\"'}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """arguments: JSON, as the model wrote it. error: why they do not meet the tool's schema."""

    name: str
    arguments: str
    id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Content, reasoning and tool calls of a model's response."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def message(self) -> dict[str, Any]:
        """Return the response as a message of the OpenAI API, for the next prompt."""
        found: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.tool_calls:
            found["content"] = self.content or None
            found["tool_calls"] = [
                {
                    "type": "function",
                    "id": call.id,
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        return found


class Reader:
    """Builder of a response from tagged parts."""

    def __init__(self) -> None:
        self.content = self.reasoning = ""
        self.calls: list[ToolCall] = []
        self.call: ToolCall | None = None  # current call
        self.n_args, self.open_quote = 0, False

    def read(self, found: Sequence[TaggedPart]) -> ChatAnswer:
        for one in found:
            self._visit(one)
        if self.call is not None and self.call.name:
            end = '"' if self.open_quote and self.call.arguments else ""
            self.calls.append(replace(self.call, arguments=self.call.arguments + end))
        return self.answer()

    def answer(self) -> ChatAnswer:
        thoughts = self.reasoning if self.reasoning.strip(" \n\r\t") else ""
        return ChatAnswer(self.content, thoughts, tuple(self.calls))

    def _visit(self, one: TaggedPart) -> None:
        read = _READ.get(one.name)
        if read is not None:
            read(self, one)
        for part in one.parts:
            self._visit(part)

    def add_content(self, one: TaggedPart) -> None:
        self.content += one.text

    def add_reasoning(self, one: TaggedPart) -> None:
        self.reasoning += one.text

    def open_call(self, one: TaggedPart) -> None:
        self.call, self.n_args, self.open_quote = ToolCall("", ""), 0, False

    def set_id(self, one: TaggedPart) -> None:
        id = one.text.rstrip(SPACES)
        if len(id) > 1 and id[0] == id[-1] == '"':
            id = id[1:-1]
        self._now(id=id)

    def name_call(self, one: TaggedPart) -> None:
        arguments = self._arguments() or "{"
        self._now(name=one.text.rstrip(SPACES), arguments=arguments)
        if self.call is not None:  # visible from this point
            self.calls.append(self.call)
            self.call = None

    def set_arguments(self, one: TaggedPart) -> None:
        text = one.text.rstrip(SPACES)
        if text.startswith("{"):
            self._now(arguments=text)

    def open_argument(self, one: TaggedPart) -> None:
        self.open_quote = False

    def name_argument(self, one: TaggedPart) -> None:
        name = one.text[1:] if one.text[:1] in (*SPACES, "") else one.text
        before = self._arguments() or "{"
        comma = "," if self.n_args else ""
        self.n_args += 1
        self._now(arguments=f"{before}{comma}{quote_json(name.rstrip(SPACES))}:")

    def value(self, one: TaggedPart) -> None:
        self._add(as_json(one.text))

    def string(self, one: TaggedPart) -> None:
        begin = "" if self.open_quote else '"'
        self.open_quote = True
        self._add(begin + escape_json(one.text))

    def close_argument(self, one: TaggedPart) -> None:
        if self.open_quote:
            self._add('"')
        self.open_quote = False

    def close_call(self, one: TaggedPart) -> None:
        self.close_argument(one)
        self._add("}" * depth(self._arguments()))
        if self.call is not None and self.call.name:
            self.calls.append(self.call)
        self.call = None

    def _arguments(self) -> str:
        call = self.call or (self.calls[-1] if self.calls else None)
        return call.arguments if call is not None else ""

    def _add(self, text: str) -> None:
        self._now(arguments=self._arguments() + text)

    def _now(self, **fields: str) -> None:
        """Update the call that is being read."""
        if self.call is not None:
            self.call = replace(self.call, **fields)
        elif self.calls:
            self.calls[-1] = replace(self.calls[-1], **fields)


_READ = {
    CONTENT: Reader.add_content, REASONING: Reader.add_reasoning, TOOL_OPEN: Reader.open_call,
    TOOL_ID: Reader.set_id, TOOL_NAME: Reader.name_call, TOOL_ARGS: Reader.set_arguments,
    ARG_OPEN: Reader.open_argument, ARG_NAME: Reader.name_argument, ARG_VALUE: Reader.value,
    ARG_STRING: Reader.string, ARG_CLOSE: Reader.close_argument, TOOL_CLOSE: Reader.close_call,
}  # fmt: skip


def build_answer(
    found: Sequence[TaggedPart], call_of: Callable[[TaggedPart], ToolCall | None]
) -> ChatAnswer:
    """Build a response from tagged parts, with calls read by `call_of`; it returns None for a call
    without a name yet."""
    texts: dict[str, list[str]] = {CONTENT: [], REASONING: []}
    calls: list[ToolCall] = []
    left = list(reversed(found))
    while left:
        one = left.pop()
        if one.name in texts:
            texts[one.name].append(one.text)
        elif one.name == TOOL:
            call = call_of(one)
            calls += [call] if call is not None else []
        else:
            left += reversed(one.parts)
    thoughts = "".join(texts[REASONING])
    return ChatAnswer("".join(texts[CONTENT]), thoughts if thoughts.strip() else "", tuple(calls))


def quote_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def escape_json(text: str) -> str:
    """Return the content between the quotes of a JSON string."""
    return quote_json(text)[1:-1]


def depth(text: str) -> int:
    """Return the number of open braces in a JSON text."""
    rest = _STRING.sub("", text)
    return max(rest.count("{") - rest.count("}"), 0)


def as_json(text: str) -> str:
    """Convert a Python literal to JSON: double quotes, true for True. The start of a value becomes
    the start of its JSON (normalize_quotes_to_json)."""
    return _PARTS.sub(_part_as_json, text)


def _part_as_json(match: re.Match[str]) -> str:
    part = match[0]
    if part[0] == "'":
        ended = len(part) > 1 and match["ended"] is not None
        inner = part[1:-1] if ended else part[1:]
        return '"' + _QUOTES.sub(lambda m: _MEANT.get(m[0], m[0]), inner) + ('"' if ended else "")
    if part[0] in "TFN":
        known = [json for name, json in _PYTHON.items() if name.startswith(part)]
        return known[0][: len(part)] if known else part
    return part
