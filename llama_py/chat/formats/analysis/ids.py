"""Marks around a call's id (chat-diff-analyzer.cpp:extract_call_id_markers)."""

from __future__ import annotations

import re
from dataclasses import replace

from llama_py.chat.formats.analysis.diff import MARK, Diff, from_last_mark
from llama_py.chat.formats.analysis.trials import (
    BOTH,
    FIRST,
    ID,
    NAME,
    OTHER_ID,
    Trials,
    call,
    call_message,
)
from llama_py.chat.formats.marks import Marks

_COMMON = ID.rstrip("0123456789")  # common part of the two ids
_BEFORE_ID = re.compile(rf"({MARK})(?:(?!{MARK}|{_COMMON}).)*{_COMMON}", re.S)
_BEFORE_JSON = re.compile(rf"(?:(?!{MARK})[^{{])*({MARK})", re.S)


def with_id(marks: Marks, trials: Trials) -> tuple[Marks, tuple[str, ...]]:
    """Return the marks with marks of an id between name and arguments, and marks of ids
    elsewhere."""
    both = trials.answers(call_message(FIRST), call_message(call(BOTH, id=OTHER_ID)))
    if both is None or not (both.diff.left or both.diff.right):
        return marks, ()
    found = both.diff
    named_before, named_behind = NAME in found.prefix, NAME in found.suffix
    elsewhere: tuple[str, ...] = ()
    suffix = ""
    if named_before and not named_behind:
        rest = found.prefix.rpartition(NAME)[2]
        if "{" in rest:
            elsewhere = _behind_arguments(rest, found)
        elif "{" in found.suffix:
            marks = replace(marks, id=_find_delimiters(rest, found))
            suffix = marks.id[1]
    elif named_behind and not named_before:
        before_name = found.suffix.partition(NAME)[0]
        elsewhere = (_last_mark(found.prefix), _first_mark(before_name))
    suffix = suffix or "".join(elsewhere[1:])
    if suffix and marks.each_call[1].startswith(suffix):
        marks = replace(marks, each_call=(marks.each_call[0], ""))
    return marks, elsewhere


def _find_delimiters(rest: str, found: Diff) -> tuple[str, str]:
    before = _BEFORE_ID.search(rest)
    behind = _BEFORE_JSON.search(found.suffix)
    return before[1] if before else _last_mark(rest), behind[1] if behind else ""


def _behind_arguments(rest: str, found: Diff) -> tuple[str, str]:
    _, closed, between = rest.rpartition("}")
    return _last_mark(between) if closed else "", _first_mark(found.suffix)


def _first_mark(text: str) -> str:
    found = re.search(MARK, text)
    return found[0] if found else ""


def _last_mark(text: str) -> str:
    return _first_mark(from_last_mark(text))
