"""Detect the delimiters around reasoning (chat-diff-analyzer.cpp:analyze_reasoning)."""

from __future__ import annotations

import re
from typing import NamedTuple

from llama_py.chat.formats.analysis.diff import MARK, SPACES, segments
from llama_py.chat.formats.analysis.trials import FIRST, SAID, THOUGHT, Trials, content_message

ANCHOR = 64  # length of compared prompt ends in characters
_WRAPPED = re.compile(rf"({MARK}\s*){THOUGHT}(\s*{MARK}\s*)")
_BEFORE_CALL = re.compile(rf"({MARK}\s*){THOUGHT}\s*({MARK}\s*)")
_ENDED = re.compile(rf"{THOUGHT}\s*({MARK}\s*)?")


class Around(NamedTuple):
    """Delimiters before and after reasoning, with spaces; "" if missing."""

    start: str = ""
    end: str = ""


def around_thoughts(trials: Trials) -> Around:
    """Find the delimiters around reasoning: in responses, then in prompts for responses."""
    found = _find_in_prompts(trials, _find_in_responses(trials))
    return _find_before_calls(trials, found) if trials.caps.tool_calls else found


def _find_in_responses(trials: Trials) -> Around:
    both = trials.answers(content_message(), content_message(SAID, THOUGHT), tools=False)
    if both is None or THOUGHT not in both.diff.right:
        return Around()
    wrapped = _WRAPPED.search(both.b)
    return Around(wrapped[1], wrapped[2]) if wrapped else Around("", _end(both.b))


def _find_in_prompts(trials: Trials, found: Around) -> Around:
    """Return delimiters at the ends of two prompts, with and without enabled reasoning."""
    both = trials.compare_prompts()
    if both is None:
        return found
    without, thinking = both.diff.left, both.diff.right
    left, right = without.strip(SPACES), thinking.strip(SPACES)
    if right and not left:
        opens = not found.start and both.b.endswith(right)
        return found._replace(start=thinking) if opens else found
    if left and not right:
        closes = not found.end and both.a.endswith(left)
        return _find_closed_marks(both.a, without, found) if closes else found
    return _find_after_anchor(both.a, both.b, found) if left and right else found


def _find_closed_marks(prompt: str, end: str, found: Around) -> Around:
    """Return the delimiters of a prompt that opens and closes reasoning."""
    parts = [one for one in segments(prompt) if one.text.strip(SPACES)]
    begins = len(parts) > 1 and parts[-1].text == end.strip(SPACES) and parts[-2].is_mark
    return Around(parts[-2].text if begins else found.start, end)


def _find_after_anchor(a: str, b: str, found: Around) -> Around:
    """Return delimiters if one prompt has exactly two more, after the end of the other prompt."""
    for shorter, longer in ((b, a), (a, b)):
        end = shorter[-ANCHOR:]
        _, known, more = longer.rpartition(end)
        parts = [one for one in segments(more.strip(SPACES)) if one.text.strip(SPACES)]
        if known and len(parts) == 2 and all(one.is_mark for one in parts):
            return Around(found.start or parts[0].text, found.end or parts[1].text)
    return found


def _find_before_calls(trials: Trials, found: Around) -> Around:
    """Find the delimiters of a template that writes reasoning only before tool calls."""
    both = trials.answers(content_message(SAID, THOUGHT), content_message(None, THOUGHT, FIRST))
    if both is None or THOUGHT in both.a or THOUGHT not in both.b:
        return found
    wrapped = _BEFORE_CALL.search(both.b)
    return Around(wrapped[1], wrapped[2]) if wrapped else Around(found.start, _end(both.b))


def _end(text: str) -> str:
    """Return the delimiter that follows reasoning."""
    found = _ENDED.search(text)
    return (found and found[1]) or ""
