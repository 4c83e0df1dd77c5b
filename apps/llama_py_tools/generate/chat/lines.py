r"""What is one message, and where messages come from.

A line that ends with `\` goes on in the next one, and so does what begins with three quotes, until
three quotes end a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from llama_py_tools.command.streams import is_edited, next_line
from llama_py_tools.models import session

QUOTES = '"""'
PROMPT, MORE = "> ", ". "

Unfinished = Callable[[str], bool]


def unfinished(text: str) -> bool:
    """Whether another line belongs to a message."""
    stripped = text.strip()
    if stripped.startswith(QUOTES):
        return len(stripped) < 2 * len(QUOTES) or not stripped.endswith(QUOTES)
    return text.endswith("\\")


def unfinished_always(text: str) -> bool:
    r"""The same where a message goes on until a line that ends with `\` (-mli)."""
    stripped = text.strip()
    return unfinished(text) if stripped.startswith(QUOTES) else not text.endswith("\\")


def message(text: str) -> str:
    """A message without the marks of its lines. Behind a space or quotes is no command, so it keeps
    a space."""
    stripped = text.strip()
    if stripped.startswith(QUOTES):
        return " " + stripped.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
    return text.replace("\\\n", "\n").removesuffix("\\").rstrip()


class MessageSource(Protocol):
    """Where messages come from."""

    def read(self, default: str = "") -> str | None:
        """The next message, whose text may begin as `default`; None at the end. Raises
        KeyboardInterrupt where Ctrl-C comes."""


class StdinLines:
    """Lines of stdin, of a pipe or of a terminal of which nothing more is asked."""

    def __init__(self, more: Unfinished = unfinished) -> None:
        """more: whether a text needs another line."""
        self.more = more
        self.edited = is_edited()

    def read(self, default: str = "") -> str | None:
        text = next_line(self.edited, "\n" + PROMPT)
        if text is None:
            return None
        while self.more(text):
            line = next_line(self.edited, MORE)
            if line is None:
                break
            text += f"\n{line}"
        return message(text)


class PromptSource:
    """Ctrl-C at the prompt clears the line; a second one ends the conversation."""

    def __init__(self, source: MessageSource) -> None:
        self.source = source

    def read(self, default: str = "") -> str | None:
        try:
            text, cleared = self.source.read(default), False
        except KeyboardInterrupt:
            text, cleared = None, True
        while cleared:
            text, cleared = self._read_again()
        return text

    def _read_again(self) -> tuple[str | None, bool]:
        """A message, None for the end; whether Ctrl-C only cleared what was typed."""
        try:
            session.tell("(Ctrl-C again, Ctrl-D or /exit ends the conversation)")
            return self.source.read(), False
        except KeyboardInterrupt as e:
            return None, bool(e.args)

    def read_once(self, default: str) -> str | None:
        """A text that may begin as `default`; None if it was given up."""
        try:
            return self.source.read(default)
        except KeyboardInterrupt:
            return None
