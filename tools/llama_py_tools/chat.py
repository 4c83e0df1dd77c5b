"""Talking with a model: lines from stdin or a terminal, answers on stdout."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from llama_py_tools import session

if TYPE_CHECKING:
    from llama_py_tools.generation import Run

HELP = "commands: /clear forgets the conversation, /exit (or Ctrl-D) ends it"


class Talk:
    """Reads what the user says and shows what the model answers."""

    def __init__(self, run: Run, system: str, single_turn: bool) -> None:
        """ModelError if the model has no chat template."""
        from ggml_py.errors import ModelError
        from llama_py import Conversation

        if run.model.chat_template is None:
            raise ModelError("the model has no chat template; leave out -cnv, -st and -sys")
        self.run = run
        self.conversation = Conversation(run.ctx, system)
        self.single_turn = single_turn
        self.terminal = sys.stdin is not None and sys.stdin.isatty()

    def talk(self, first: str | None) -> None:
        """Answer `first`, then each line of stdin, until /exit, Ctrl-D or its end."""
        if self.terminal and not (self.single_turn and first is not None):
            session.tell(HELP)
        line = first if first is not None else self.read()
        while line is not None and line != "/exit":
            if line == "/clear":
                self.clear()
            elif line:
                self.turn(line)
                if self.single_turn:
                    return
            line = self.read()

    def read(self) -> str | None:
        """The next line; None at the end."""
        if self.terminal and sys.stdout is not None and sys.stdout.isatty():
            with suppress(ImportError):  # Windows does without
                import readline  # noqa: F401  line editing and history for input()

            try:
                return input("\n> ").strip()
            except EOFError:
                return None
        line = "" if sys.stdin is None else sys.stdin.readline()
        return line.strip() if line else None

    def clear(self) -> None:
        self.conversation.clear()
        self.run.sampler.reset()

    def turn(self, line: str) -> None:
        """One question and its answer. On a terminal Ctrl-C ends the answer only."""
        ids = self.conversation.say(line)
        self.run.reused(self.conversation.prefix.told)
        try:
            with closing(self.conversation.answer(ids, **vars(self.run.params))) as pieces:
                self.run.show(pieces, len(ids))
        except KeyboardInterrupt:
            if not self.terminal or self.single_turn:
                raise
            self.run.summary.pending = None
        self.run.end_line()
