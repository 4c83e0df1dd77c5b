"""Detection of a template's response format by rendering small conversations.

trials.py   the conversations, and the differences of two results (`diff.py`)
thoughts.py, said.py, calls.py   the marks around parts of a response
json_objects.py, names.py, arguments.py, ids.py   marks within calls
patches.py  templates that do not reveal their format

chat-diff-analyzer.cpp; a missing mark is "".
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from llama_py.chat.formats.analysis.calls import with_calls
from llama_py.chat.formats.analysis.patches import patch_marks
from llama_py.chat.formats.analysis.said import around_said
from llama_py.chat.formats.analysis.thoughts import around_thoughts
from llama_py.chat.formats.analysis.trials import Trials
from llama_py.chat.formats.marks import Marks
from llama_py.chat.template import ChatTemplate

__all__ = ["marks_in"]


@lru_cache(64)
def find_marks(source: str) -> Marks:
    """Return the marks of responses, from a template's text, without special tokens."""
    from llama_py.chat.sandbox import always_the_same

    with always_the_same():  # trials must not differ by time or random values
        return _analyze_marks(source)


def _analyze_marks(source: str) -> Marks:
    trials = Trials(ChatTemplate(source))
    thoughts = around_thoughts(trials)
    said = around_said(trials, thoughts)
    found = Marks(think=thoughts.start, thought=thoughts.end, say=said.start, said=said.end)
    elsewhere: tuple[str, ...] = ()
    if trials.caps.tool_calls:
        found, elsewhere = with_calls(found, trials, thoughts)
    shown = dict.fromkeys((*found.shown_marks, *(mark for mark in elsewhere if mark)))
    return patch_marks(replace(found, preserved=tuple(shown)), source)
