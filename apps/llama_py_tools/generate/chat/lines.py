r"""Messages of one or several lines, and their sources.

A line that ends with `\` continues in the next line. Three quotes begin a text of several lines,
and three quotes at the end of a line end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from llama_py_tools.command.streams import is_edited, next_line
from llama_py_tools.models import session

QUOTES = '"""'
PROMPT, MORE = "> ", ". "

Unfinished = Callable[[str], bool]


def is_unfinished(text: str) -> bool:
    """Return True if another line belongs to the message."""
    stripped = text.strip()
    if stripped.startswith(QUOTES):
        return len(stripped) < 2 * len(QUOTES) or not stripped.endswith(QUOTES)
    return text.endswith("\\")


def unfinished_always(text: str) -> bool:
    r"""Return True unless a line ends with `\` (-mli): the message then continues."""
    stripped = text.strip()
    return is_unfinished(text) if stripped.startswith(QUOTES) else not text.endswith("\\")


def message(text: str) -> str:
    """Return a message without its line marks. After a space or quotes it is not a command, so it
    keeps a space."""
    stripped = text.strip()
    if stripped.startswith(QUOTES):
        return " " + stripped.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
    return text.replace("\\\n", "\n").removesuffix("\\").rstrip()


class MessageSource(Protocol):
    """Interface of message sources."""

    def read(self, default: str = "") -> str | None:
        """Return the next message, with `default` as its editable start; None at the end. Raises
        KeyboardInterrupt on Ctrl-C."""


class StdinLines:
    """Source of lines from stdin: a pipe, or a terminal without prompts."""

    def __init__(self, more: Unfinished = is_unfinished) -> None:
        """Store the rule; more: returns True if a text needs another line."""
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
        """Return a message, None for the end; and True if Ctrl-C only cleared the input."""
        try:
            session.tell("(press Ctrl-C again or Ctrl-D, or type /exit, to quit)")
            return self.source.read(), False
        except KeyboardInterrupt as e:
            return None, bool(e.args)

    def read_once(self, default: str) -> str | None:
        """Return a text with `default` as its editable start; None if it was cancelled."""
        try:
            return self.source.read(default)
        except KeyboardInterrupt:
            return None
