"""Detection of the format of tool calls (chat-diff-analyzer.cpp:analyze_tools)."""

from __future__ import annotations

import re
from dataclasses import replace

from llama_py.chat.formats.analysis.arguments import with_arguments
from llama_py.chat.formats.analysis.diff import MARK, SPACES, diff
from llama_py.chat.formats.analysis.ids import with_id
from llama_py.chat.formats.analysis.json_objects import with_json
from llama_py.chat.formats.analysis.names import with_names
from llama_py.chat.formats.analysis.thoughts import Around
from llama_py.chat.formats.analysis.trials import (
    FIRST,
    KEY,
    NAME,
    SECOND,
    Trials,
    call_message,
    content_message,
)
from llama_py.chat.formats.marks import Marks

# A name in separate brackets, with the spaces after the brackets.
_NAME = re.compile(
    rf"(<(?:(?!>|{NAME}).)*){NAME}(?!\s*<)[^>]*>\s*"
    rf"|(\[(?:(?!\]|{NAME}).)*){NAME}(?!\s*\[[^\]]*\])\s*",
    re.S,
)
_TWO_ENDS, _ONE_END = (re.compile(p) for p in (rf"({MARK}\s*)({MARK}\s*)\Z", rf"({MARK}\s*)\Z"))


def with_calls(marks: Marks, trials: Trials, thoughts: Around) -> tuple[Marks, tuple[str, ...]]:
    """Return the marks with marks of calls, and further marks that must be visible, such as ids."""
    both = trials.answers(content_message(), call_message(FIRST))
    if both is None or not both.diff.right:
        return marks, ()
    text = both.diff.right
    for mark in thoughts:
        text = text.replace(mark, "", 1) if mark else text
    if _is_in_json(NAME, both.diff.right):
        return with_json(marks, trials, text), ()
    in_tags = not _is_in_json(KEY, both.diff.right)
    marks = _around_calls(replace(marks, calls="tags" if in_tags else "name"), text)
    if trials.caps.parallel_tool_calls:
        marks = _of_each(marks, trials)
    marks = with_names(marks, trials)
    if in_tags:
        marks = with_arguments(marks, trials)
    return with_id(marks, trials)


def _is_in_json(word: str, text: str) -> bool:
    return re.search(rf'[{{:]\s*"{word}"', text) is not None


def _around_calls(marks: Marks, text: str) -> Marks:
    """Return up to two marks before the name or its brackets, and the same number at the end."""
    in_brackets = _NAME.search(text)
    name = in_brackets[0] if in_brackets else NAME
    before = (in_brackets[1] or in_brackets[2]) if in_brackets else ""
    quoted = re.escape(name)
    two = re.search(rf"({MARK}\s*)({MARK}\s*)(?:(?!{quoted}).)*{quoted}", text, re.S)
    if two:
        ends = _TWO_ENDS.search(text[two.end() :])
        end, last = (ends[1], ends[2]) if ends else ("", "")
        return replace(
            marks,
            section=(two[1], last.strip(SPACES)),
            each_call=(two[2], end.strip(SPACES)),
            name=(before, ""),
        )
    one = re.search(rf"({MARK}\s*){quoted}", text)
    ended = _ONE_END.search(text[one.end() :] if one else text)
    last = ended[1].strip(SPACES) if ended else ""
    if one:
        return replace(marks, section=(one[1], last))
    # Not in llama.cpp: brackets with the name begin a call.
    return replace(marks, each_call=(before, last)) if before and last else marks


def _of_each(marks: Marks, trials: Trials) -> Marks:
    """Return separate marks around each of two calls and around all calls."""
    both = trials.answers(call_message(FIRST), call_message(FIRST, SECOND))
    if both is None:
        return marks
    second = diff(both.diff.suffix, both.diff.right).right.lstrip(SPACES)
    if marks.section[0] and second.startswith(marks.section[0]):
        marks = replace(marks, section=("", ""), each_call=marks.section)
    start, end = marks.each_call
    if end and 0 < both.a.count(end) == both.b.count(end):
        marks = replace(marks, section=(marks.section[0], end), each_call=(start, ""))
    return marks
