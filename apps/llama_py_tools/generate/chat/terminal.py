"""Messages typed on a terminal: line editing, history, completion (prompt_toolkit)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from llama_py_tools.command.streams import in_colour
from llama_py_tools.generate.chat import history
from llama_py_tools.generate.chat.lines import MORE, PROMPT, Unfinished, is_unfinished, message
from llama_py_tools.models import session

FILES = "files"  # type of a command's argument: names of files, or words


class Terminal:
    """A prompt with the history of earlier runs."""

    def __init__(
        self, commands: Mapping[str, str | Iterable[str]], more: Unfinished = is_unfinished
    ) -> None:
        """Create the prompt; commands: completions after each command, FILES or words; more:
        returns True if a text needs another line."""
        style = Style.from_dict({"prompt": "ansigreen bold", "more": "ansigreen"})
        self.more = more
        self.session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_Commands(commands),
            complete_while_typing=False,
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation=_continuation,
            style=style if in_colour(sys.stdout) else None,
        )

    def read(self, default: str = "") -> str | None:
        """See `lines.MessageSource`. KeyboardInterrupt has the text of the line, if it had some."""
        print()
        try:
            return message(self.session.prompt([("class:prompt", PROMPT)], default=default))
        except EOFError:
            return None

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None  # accept the selected completion
            elif self.more(buffer.text):
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.app.exit(exception=KeyboardInterrupt(*[text][: bool(text)]))

        return keys


def _continuation(width: int, line_number: int, wrap_count: int) -> Any:
    """Return the prompt before further lines of a message, not before lines wrapped by a narrow
    screen."""
    return [("class:more", " " * len(MORE) if wrap_count else MORE)]


def _history() -> History:
    file = history.open_history()
    if file is None:
        session.log.warning("%s cannot be written, so input history is not saved", history.path())
        return InMemoryHistory()
    return _HistoryFile(str(file))


class _HistoryFile(FileHistory):
    """History file that accepts any input, and ignores a full disk."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string.encode("utf-8", "replace").decode())


class _Commands(Completer):
    """Completer of commands and their arguments."""

    def __init__(self, commands: Mapping[str, str | Iterable[str]]) -> None:
        self.commands = commands
        self.files = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        command, space, rest = text.partition(" ")
        if not space:
            yield from _starting(command, self.commands)
            return
        following = self.commands.get(command, ())
        if following == FILES:
            yield from self.files.get_completions(Document(rest, len(rest)), complete_event)
        elif " " not in rest:
            yield from _starting(rest, following)


def _starting(start: str, words: Iterable[str]) -> Iterable[Completion]:
    for word in words:
        if word.startswith(start):
            yield Completion(f"{word} ", -len(start), display=word)
