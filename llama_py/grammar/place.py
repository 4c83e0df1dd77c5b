"""Positions of errors in a grammar's text."""

from __future__ import annotations

from ggml_py.errors import GrammarError

_SHOWN = 20  # characters


def position_error(text: str, at: int, what: str, of: str = "grammar") -> GrammarError:
    """Return an error such as `grammar, line 2, column 7: expected ::= at "= x"`."""
    line, column = text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
    rest = text[at : at + _SHOWN].partition("\n")[0]
    return GrammarError(f"{of}, line {line}, column {column}: {what}, {describe_place(rest)}")


def describe_place(rest: str) -> str:
    return f"at {rest!r}" if rest else "at the end of the line"
