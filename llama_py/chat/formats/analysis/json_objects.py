"""Detection of calls as JSON objects: their keys and the marks around them.

chat-diff-analyzer.cpp:analyze_tool_call_format_json_native
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from llama_py.chat.formats.analysis.diff import SPACES
from llama_py.chat.formats.analysis.trials import FIRST, KEY, NAME, SECOND, Trials, call_message
from llama_py.chat.formats.json_calls import CallKeys
from llama_py.chat.formats.marks import Marks


def with_json(marks: Marks, trials: Trials, text: str) -> Marks:
    """Return the marks of JSON calls; text: rendered call without marks of reasoning."""
    start, end = text.find("{"), text.rfind("}") + 1
    cut = text[start:end]
    try:
        found = json.loads(cut)
    except (ValueError, RecursionError):  # another notation
        return marks
    keys = _keys(found, text)
    listed = re.search(rf"\[\s*{re.escape(cut)}\s*\]", text)
    if listed:
        start, end = listed.span()
        keys = replace(keys, array=True)
    first, last = text[:start].lstrip(SPACES), text[end:].strip(SPACES)
    marks = replace(marks, calls="json", keys=keys, section=(first, last))
    return _of_each(marks, trials) if trials.caps.parallel_tool_calls else marks


def _of_each(marks: Marks, trials: Trials) -> Marks:
    """Return marks around each call: the marks that a second call repeats."""
    both, first = trials.answers(call_message(FIRST), call_message(FIRST, SECOND)), marks.section[0]
    if both is None or not first or first not in both.diff.right:
        return marks
    return replace(marks, section=("", ""), each_call=marks.section)


class _Paths:
    """Paths of a call's parts, `a.b` in an inner object; `outer` is its key."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.name, self.arguments, self.id, self.made_id = "name", "arguments", "", ""
        self.outer, self.by_name = "function", False
        for key, value in found.items():
            if key == NAME:
                self.by_name, self.name, self.arguments = True, "", ""
                continue
            if isinstance(value, dict) and KEY not in json.dumps(value):
                self.outer = key
                for inner, part in value.items():
                    self._note(f"{key}.{inner}", inner, part)
            self._note(key, key, value)

    def _note(self, path: str, key: str, value: Any) -> None:
        if isinstance(value, str) and "call0000" in value:
            self.id = path
        elif value == NAME:
            self.name = path
        elif KEY in json.dumps(value):
            self.arguments = path
        elif "id" in key:
            self.made_id = path


def _keys(found: dict[str, Any], text: str) -> CallKeys:
    paths = _Paths(found)
    known = [one for one in (paths.name, paths.arguments, paths.id, paths.made_id) if one]
    places = {one: text.find(one) if one in text else len(text) for one in known}
    order = sorted(known, key=lambda one: (places[one], one))
    name, arguments = paths.name, paths.arguments
    if paths.outer not in ("", "function") and "." not in name:
        name, arguments = f"{paths.outer}.{name}", f"{paths.outer}.{arguments}"
    return CallKeys(name, arguments, paths.id, paths.made_id, tuple(order), by_name=paths.by_name)
