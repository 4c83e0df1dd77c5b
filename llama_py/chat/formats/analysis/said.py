"""Detection of marks around content (chat-diff-analyzer.cpp:analyze_content)."""

from __future__ import annotations

import re

from llama_py.chat.formats.analysis.diff import MARK, SPACES
from llama_py.chat.formats.analysis.thoughts import Around
from llama_py.chat.formats.analysis.trials import (
    SAID,
    THOUGHT,
    Trials,
    call,
    call_message,
    content_message,
)

_WRAPPED = re.compile(rf"({MARK}\s*){SAID}\s*({MARK}\s*)")


def around_said(trials: Trials, thoughts: Around) -> Around:
    """Return the text that is always before and after content."""
    calls = trials.answers(content_message(), call_message(call({"arg1": "value1"}, "test_func")))
    thinks = trials.answers(content_message(), content_message("", THOUGHT))
    if calls is None or thinks is None:
        return Around()
    alone, beside_thoughts = calls.diff.left, thinks.diff.left
    if alone.strip(SPACES) == SAID and _is_plain(beside_thoughts, thoughts.end):
        return Around()
    if thoughts.end and thoughts.end in beside_thoughts:
        beside_thoughts = beside_thoughts.partition(thoughts.end)[2]
    wrapped = _WRAPPED.search(max(alone, beside_thoughts, key=len))
    return Around(wrapped[1], wrapped[2]) if wrapped else Around()


def _is_plain(text: str, end: str) -> bool:
    """Return True if a text, which may start with the end of reasoning, has no own mark."""
    if text.lstrip(SPACES) == text:
        return True
    return bool(end) and re.search(rf"{re.escape(end)}\s*{SAID}", text) is not None
