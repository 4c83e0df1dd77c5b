"""Detection of marks around a call's name, before and after its arguments.

chat-diff-analyzer.cpp:extract_function_markers
"""

from __future__ import annotations

import re
from dataclasses import replace

from llama_py.chat.formats.analysis.diff import MARK, NO_MARK, SPACES
from llama_py.chat.formats.analysis.trials import (
    FIRST,
    KEY,
    NAME,
    OTHER_KEY,
    OTHER_NAME,
    OTHER_VALUE,
    SECOND,
    Trials,
    call_message,
)
from llama_py.chat.formats.marks import Marks

_NAMED = re.compile(rf"((?:(?!{NAME}).)*){NAME}({NO_MARK})", re.S)
_UP_TO_JSON = re.compile(rf"(?:{MARK}|[^{{\[])*", re.S)
_UP_TO_MARK = re.compile(NO_MARK, re.S)
_ARGUMENT = re.compile(rf"{MARK}\s*(?:{KEY}|{OTHER_KEY})")
_BEHIND_TAGS = re.compile(rf"{OTHER_VALUE}\s*{MARK}\s*(.*)", re.S)
_LAST_BRACKET = re.compile(r".*[}\]]", re.S)


def with_names(marks: Marks, trials: Trials) -> Marks:
    both = trials.answers(call_message(FIRST), call_message(SECOND))
    if both is None or NAME not in both.diff.left or OTHER_NAME not in both.diff.right:
        return marks
    before, behind = both.diff.prefix, both.diff.suffix
    start = marks.each_call[0] or marks.section[0]
    prefix = before.rpartition(start)[2] if start and start in before else marks.name[0]
    suffix = ""
    named = _NAMED.match(both.diff.left)
    if named:
        prefix, suffix = prefix + named[1].removeprefix(marks.each_call[0]), named[2]
    more, gap = (_up_to_json if marks.calls == "name" else _up_to_arguments)(behind)
    end = marks.each_call[1] or marks.section[1]
    close = _behind_arguments(marks, behind.partition(end)[0]) if end else ""
    return replace(marks, name=(prefix, suffix + more), gap=gap, close=close)


def _up_to_json(text: str) -> tuple[str, str]:
    """Return the text before the arguments, if a mark follows them."""
    found = _UP_TO_JSON.match(text)
    end = found.end() if found else 0
    return (text[:end] if re.search(MARK, text[end:]) else ""), ""


def _up_to_arguments(text: str) -> tuple[str, str]:
    """Return the text before the first mark, and then before the first argument's mark."""
    found = _UP_TO_MARK.match(text)
    end = found.end() if found else 0
    first = _ARGUMENT.search(text, end)
    return text[:end], text[end : first.start()].strip(SPACES) if first else ""


def _behind_arguments(marks: Marks, text: str) -> str:
    if marks.calls == "tags":
        found = _BEHIND_TAGS.search(text)
        return found[1].lstrip(SPACES) if found else ""
    last = _LAST_BRACKET.match(text.partition(OTHER_VALUE)[2])
    return last.string[last.end() :].lstrip(SPACES) if last else ""
