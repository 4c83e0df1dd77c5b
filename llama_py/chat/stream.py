"""Parsing of a streamed response: the deltas make the same message however it is split."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from llama_py.chat.answer import CONTENT, REASONING, TOOL, TOOL_NAME, ChatAnswer, ToolCall
from llama_py.chat.peg.found import DONE, FAIL, MORE, ParsedText, ParseResult, TaggedPart
from llama_py.chat.peg.nodes import Expression

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of a response: of `content`, of `reasoning`, or of a tool call.

    index      the call's index; None: not part of a call
    id, name   of a call, once, with its first delta
    arguments  a piece of the call's JSON
    error      violation of the tool's schema by the arguments, at the end of the response
    """

    content: str = ""
    reasoning: str = ""
    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""
    error: str = ""


Read = Callable[[tuple[TaggedPart, ...]], ChatAnswer]  # creates a response from matches


def new_id() -> str:
    """Return a call id like llama-server's: 32 letters and digits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(32))


class AnswerParser:
    """Reads one response: `feed` its text in pieces, then `finish`.

    From the first text that does not match the format, such as a call of an unknown tool, a
    response is content.
    """

    def __init__(
        self,
        root: Expression,
        read: Read,
        prompt: str = "",
        ids: Callable[[], str] = new_id,
        late_ids: bool = False,
        silent: bool = False,
        drops: tuple[str, ...] = (),
        problem_of: Callable[[ToolCall], str] | None = None,
    ) -> None:
        """prompt: the end of the prompt that the expression begins with; ids: creates ids of calls
        without one; late_ids: a call's id may follow its arguments; silent: omit deltas for the
        prompt's part of the response; drops: omit text after a response, unless it begins with a
        given text; problem_of: returns why a call is wrong, or ""."""
        self._root, self._read, self._ids = root, read, ids
        self._late_ids, self._ended, self._drops = late_ids, False, drops
        self._problem_of = problem_of
        self._text = ParsedText(prompt)
        self._n_prompt = len(prompt)
        self._wrong: int | None = None  # start of text outside the format
        self._answer, self._told = ChatAnswer(), ChatAnswer()
        self._ends: int = len(prompt)  # end of the text in the response
        self._cut = ""
        self._tail: TaggedPart | None = None
        if silent:
            self._parse(prompt)
            self._deltas()

    @property
    def answer(self) -> ChatAnswer:
        """Current response, as the sum of the deltas."""
        return self._told

    def feed(self, text: str) -> list[AnswerDelta]:
        """Add a piece of the response and return the deltas that are now certain."""
        if self._wrong is None and text:
            self._append(text)
        else:
            self._text.text += text
        return self._deltas()

    def finish(self) -> ChatAnswer:
        """Finish and return the response; `rest` has the remaining deltas."""
        self.rest()
        return self._told

    def rest(self) -> list[AnswerDelta]:
        """Finish and return the last deltas."""
        self._ended = True
        if self._wrong is None and self._cut:
            self._answer = _with_cut(self._answer, self._cut, self._tail)
            self._cut = ""
        return [*self._deltas(), *self._problems()]

    def _problems(self) -> list[AnswerDelta]:
        """Check the calls of an answer that has ended, once."""
        problem_of, self._problem_of = self._problem_of, None
        if problem_of is None:
            return []
        calls = tuple(replace(call, error=problem_of(call)) for call in self._told.tool_calls)
        self._told = replace(self._told, tool_calls=calls)
        return [
            AnswerDelta(index=i, error=call.error) for i, call in enumerate(calls) if call.error
        ]

    def _append(self, text: str) -> None:
        before = self._text.text
        if self._parse(before + text):
            return
        low, high = 0, len(text)  # `low` characters match, `high` characters do not
        while high - low > 1:
            middle = (low + high) // 2
            if self._parse(before + text[:middle]):
                low = middle
            else:
                high = middle
        self._parse(before + text[:low])
        self._wrong = self._ends
        self._text.text = before + text

    def _parse(self, text: str) -> bool:
        """Parse a text; if it matches the format, store its response and return True."""
        now = self._text
        if len(text) < len(now.text):
            now.kept.clear()
            now.begun.clear()
        now.text, now.far, now.cut = text, 0, -1
        try:
            result = self._root.parse(now, 0)
        except RecursionError:
            result = ParseResult(FAIL, 0)
        if result.state == FAIL or (result.state == DONE and self._more_follows(result.end)):
            return False
        self._answer = self._read(result.found)
        self._tail = _find_last(result.found)
        self._ends = max(self._n_prompt, self._tail.end if self._tail else 0)
        is_tail = self._tail is not None and now.cut == self._tail.end >= self._n_prompt
        self._cut = text[now.cut :] if is_tail and result.state == MORE else ""
        return True

    def _more_follows(self, end: int) -> bool:
        """Return True if text follows the response that cannot be dropped."""
        rest = self._text.text[end:].strip()
        return bool(rest) and (not self._drops or rest.startswith(self._drops))

    def _deltas(self) -> list[AnswerDelta]:
        now, told = self._answer, self._told
        if self._wrong is not None:
            now = replace(now, content=now.content + self._text.text[self._wrong :])
        found = []
        if more := _new_text(told.reasoning, now.reasoning):
            found.append(AnswerDelta(reasoning=more))
        if more := _new_text(told.content, now.content):
            found.append(AnswerDelta(content=more))
        calls = list(told.tool_calls)
        for i, call in enumerate(now.tool_calls):
            if not call.name:
                break
            goes_on = i == len(now.tool_calls) - 1 and not self._ended
            if self._late_ids and not call.id and goes_on:
                break
            if i == len(calls):
                id = call.id or self._ids()
                calls.append(ToolCall(call.name, "", id))
                found.append(AnswerDelta(index=i, id=id, name=call.name))
            if more := _new_text(calls[i].arguments, call.arguments):
                calls[i] = replace(calls[i], arguments=calls[i].arguments + more)
                found.append(AnswerDelta(index=i, arguments=more))
        self._told = ChatAnswer(
            told.content + "".join(d.content for d in found),
            told.reasoning + "".join(d.reasoning for d in found),
            tuple(calls),
        )
        return found


def _new_text(told: str, now: str) -> str:
    """Return the new part of a text; "" if the text sent is no longer its beginning."""
    return now[len(told) :] if now.startswith(told) else ""


def _find_last(found: tuple[TaggedPart, ...]) -> TaggedPart | None:
    """Return the last main part of a response; a call only once it has a name."""
    for one in reversed(found):
        if one.name in (CONTENT, REASONING) or (one.name == TOOL and one.find_first(TOOL_NAME)):
            return one
        inner = _find_last(one.parts)
        if inner is not None:
            return inner
    return None


def _with_cut(answer: ChatAnswer, cut: str, tail: TaggedPart | None) -> ChatAnswer:
    """Return the response with the start of a tag that was not completed."""
    if tail is not None and tail.name == CONTENT:
        return replace(answer, content=answer.content + cut)
    if tail is not None and tail.name == REASONING and answer.reasoning:
        return replace(answer, reasoning=answer.reasoning + cut)
    return answer
