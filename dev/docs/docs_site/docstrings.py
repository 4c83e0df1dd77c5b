"""Convert docstrings to Markdown: columns of `name   meaning` become lists.

The help line of an option (llama_py/params) becomes the docstring of its field.
"""

from __future__ import annotations

import re
from ast import literal_eval
from pkgutil import resolve_name
from typing import Any

from griffe import Attribute, Docstring, ExprCall, Extension, Object

COLUMN = re.compile(r"([a-z_]\w*(?:\.\w+)*(?:, [a-z_][\w.]*)*)\s{2,}(\S.*)")


class Docstrings(Extension):
    """Griffe extension that rewrites every loaded object."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite an object before its members are loaded."""
        if obj.docstring is not None:
            obj.docstring.value = lists(obj.docstring.value)
        if isinstance(obj, Attribute):
            describe(obj)


def describe(field: Attribute) -> None:
    """Describe a field declared by `option(default, flags, help)` by its help text."""
    declared = field.value
    if isinstance(declared, ExprCall) and str(declared.function) == "option":
        default, _, help = declared.arguments[:3]
        field.value = str(default)
        field.docstring = Docstring(help_of(field, str(help)), parent=field)


def help_of(field: Attribute, source: str) -> str:
    """Return the help line of an option; read a computed help line from the class."""
    try:
        return str(literal_eval(source))
    except ValueError:
        assert field.parent is not None
        params = resolve_name(field.parent.path)
        return str(params.__dataclass_fields__[field.name].metadata["option"].help)


def lists(text: str) -> str:
    """Return the text with a list item for each line that has a name, spaces and a meaning.

    An indented line after such a line continues it.
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
