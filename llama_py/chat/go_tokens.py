"""Texts and actions of a Go template, and the tokens of actions (text/template/parse/lex.go)."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple, NoReturn

from ggml_py.errors import ModelError

SPACES = " \t\r\n"
_TRIM = re.compile(r"-[ \t\r\n]")
_COMMENT = re.compile(r"\s*/\*.*?\*/(?P<trim>[ \t\r\n]+-)?\s*\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\[abfnrtv\\"xuU])*" | `[^`]*`)
      | (?P<number>[+-]?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?![\w.]))
      | (?P<variable>\$\w*)
      | (?P<field>\.[^\W\d]\w*)
      | (?P<word>[^\W\d]\w*)
      | (?P<mark>:=|[=|(),.])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token: its kind is a group of _TOKEN; `text` of a string is a Python literal."""

    kind: str
    text: str
    line: int
    is_spaced: bool


class Item(NamedTuple):
    """A text, or the tokens of an action; n_lines: newlines in the template."""

    text: str
    tokens: list[Token] | None
    line: int
    n_lines: int

    @property
    def word(self) -> str:
        """The keyword or function at the beginning of an action, or ""."""
        return self.tokens[0].text if self.tokens and self.tokens[0].kind == "word" else ""


def fail(line: int, why: str) -> NoReturn:
    """Raise the ModelError for a line of a Go template."""
    raise ModelError(f"Go template, line {line}: {why[:200]}")


def read_items(source: str) -> list[Item]:
    """Return a template's texts and actions; a comment is an action without tokens.

    Raises ModelError for an action that does not end, and for unknown characters.
    """
    items: list[Item] = []
    at, line, trims = 0, 1, False
    while True:
        start = source.find("{{", at)
        end = len(source) if start < 0 else start
        text = source[at:end]
        n = text.count("\n")
        text = text.lstrip(SPACES) if trims else text
        inside = start + 2
        if start >= 0 and _TRIM.match(source, inside):
            text, inside = text.rstrip(SPACES), inside + 1
        items.append(Item(text, None, line, n))
        if start < 0:
            return items
        line += n
        tokens, at, trims = _read_action(source, inside, line)
        n = source.count("\n", start, at)
        items.append(Item("", tokens, line, n))
        line += n


def _read_action(source: str, at: int, line: int) -> tuple[list[Token], int, bool]:
    """Return the tokens of an action, its end, and True if it trims the text after it."""
    if comment := _COMMENT.match(source, at):
        return [], comment.end(), comment["trim"] is not None
    tokens: list[Token] = []
    spaced = False
    while not source.startswith("}}", at):
        if spaced and source.startswith("-}}", at):
            return tokens, at + 3, True
        if source[at : at + 1] in SPACES and at < len(source):
            spaced, at = True, at + 1
            continue
        found = _TOKEN.match(source, at)
        if found is None:
            here = source[at : at + 20].partition("}}")[0]
            fail(line, f"unexpected {here!r} in an action" if here else "an action has no }}")
        kind, text = str(found.lastgroup), found[0]
        if kind == "string":
            text = repr(text[1:-1] if text[0] == "`" else _unquote(text, line))
        tokens.append(Token(kind, text, line, spaced))
        spaced, at = False, found.end()
    if not tokens:
        fail(line, "an action is empty")
    return tokens, at + 2, False


def _unquote(text: str, line: int) -> str:
    """Return the text of a literal in double quotes; its escapes are Python's as well."""
    try:
        found = str(ast.literal_eval(text))
        found.encode()  # no half characters
    except (SyntaxError, ValueError):
        fail(line, f"{text[:40]} has an invalid escape")
    return found
