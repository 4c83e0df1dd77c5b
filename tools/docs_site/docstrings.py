"""Docstrings as Markdown: their columns, `name   what it is`, become lists; and the help line of an
option (llama_py/params) is the docstring of its field.
"""

from __future__ import annotations

import re
from ast import literal_eval
from typing import Any

from griffe import Attribute, Docstring, ExprCall, Extension, Object

COLUMN = re.compile(r"([a-z_]\w*(?:\.\w+)*(?:, [a-z_][\w.]*)*)\s{2,}(\S.*)")


class Docstrings(Extension):
    """Rewrites every object that is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Before its members are read."""
        if obj.docstring is not None:
            obj.docstring.value = lists(obj.docstring.value)
        if isinstance(obj, Attribute):
            describe(obj)


def describe(field: Attribute) -> None:
    """If it is declared by `option(default, flags, help)`, say that instead."""
    declared = field.value
    if isinstance(declared, ExprCall) and str(declared.function) == "option":
        default, _, help = declared.arguments[:3]
        field.value = str(default)
        field.docstring = Docstring(str(literal_eval(str(help))), parent=field)


def lists(text: str) -> str:
    """The text with a list item for each line that has a name, spaces and a meaning.

    A line that is set in below such a line goes on with it.
    """
    done: list[str] = []
    item = False
    for line in text.splitlines():
        found = COLUMN.fullmatch(line)
        if found:
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            done += [*([] if item else [""]), f"- {names}: {found[2]}"]
            item = True
        elif item and line.startswith(" "):
            done[-1] += f" {line.strip()}"
        else:
            done += [""] * (item and bool(line)) + [line]
            item = False
    return "\n".join(done)
