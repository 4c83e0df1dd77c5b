"""llguidance's error messages as one line with the position."""

from __future__ import annotations

import re

from llama_py.grammar.place import describe_place

_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_REGEX = re.compile(r"regex parse error:\n(.*)\n( *)\^+.*?\nerror: ([^\n]*)", re.DOTALL)
_MOST = 300  # characters
_INDENT = 4  # maximum indentation of an excerpt

TITLES = {"regex": "regular expression", "lark": "Lark grammar", "json_schema": "JSON schema"}


def one_line(kind: str, error: str, text: str = "") -> str:
    """Return `Lark grammar, line 1, column 8: unknown name: "foo"`."""
    title = TITLES.get(kind, kind)
    place = _PLACE.match(error)
    if place and kind == "lark":
        title += f", line {place[1]}, column {place[2]}"
    inner = _REGEX.search(error)
    if inner and kind == "regex":
        column = max(len(inner[2]) - _INDENT, 0) + 1
        return f"{title}, column {column}: {inner[3]}, {describe_place(text[column - 1 :][:20])}"
    said = f"{inner[3]} in {inner[1].strip()}" if inner else place[3] if place else error
    said = " ".join(re.split(r"\n +\d+ \| |\n?<state>|\n?<non-verbose", said)[0].split())
    said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in said[:_MOST])
    return f"{title}: {said}"
