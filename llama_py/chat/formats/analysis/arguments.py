"""Marks around the names of arguments and their values.

chat-diff-analyzer.cpp:extract_argument_name_markers, extract_argument_value_markers
"""

from __future__ import annotations

import re
from dataclasses import replace

from llama_py.chat.formats.analysis.diff import MARK, NO_MARK, SPACES, from_last_mark
from llama_py.chat.formats.analysis.trials import (
    KEY,
    OTHER_KEY,
    OTHER_VALUE,
    VALUE,
    Trials,
    call,
    call_message,
)
from llama_py.chat.formats.marks import Marks

_UP_TO_MARK = re.compile(rf"{NO_MARK}{MARK}\s*", re.S)


def with_arguments(marks: Marks, trials: Trials) -> Marks:
    return _with_values(_with_keys(marks, trials), trials)


def _with_keys(marks: Marks, trials: Trials) -> Marks:
    both = trials.answers(
        call_message(call({KEY: VALUE})), call_message(call({OTHER_KEY: OTHER_VALUE}))
    )
    if both is None or not both.diff.left or not both.diff.right:
        return marks
    left, right = both.diff.left, both.diff.right
    around, others = _around(left, KEY, VALUE[0]), _around(right, OTHER_KEY, OTHER_VALUE[0])
    if around and around[0] and around == others:  # both have the same brackets
        return replace(marks, key=around)
    if not left.startswith(KEY) or not right.startswith(OTHER_KEY):
        return marks
    before = from_last_mark(both.diff.prefix) or both.diff.prefix
    behind = _UP_TO_MARK.match(left[len(KEY) :] + both.diff.suffix)
    return replace(marks, key=(before, behind[0] if behind else ""))


def _around(text: str, key: str, value: str) -> tuple[str, str] | None:
    """Return the text before a key, and after it up to a quote or its value."""
    before, found, behind = text.partition(key)
    return (before, re.split(rf'["{value}]', behind)[0]) if found else None


def _with_values(marks: Marks, trials: Trials) -> Marks:
    both = trials.answers(call_message(call({KEY: VALUE})), call_message(call({KEY: OTHER_VALUE})))
    if both is None or (both.diff.left, both.diff.right) != (VALUE, OTHER_VALUE):
        return marks
    before, behind = both.diff.prefix, both.diff.suffix
    key = KEY + marks.key[1]
    if key in before:
        before = before.rpartition(key)[2]
    end = marks.close or marks.each_call[1] or marks.section[1]
    if end and end in behind:
        behind = behind.partition(end)[0]
    after = behind if behind.strip(SPACES) else ""
    return replace(marks, value=(from_last_mark(before) or before, after))
