"""Talking with a model: lines from stdin or a terminal, answers on stdout."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from llama_py_tools import session
from llama_py_tools.escapes import unescape
from llama_py_tools.interactive import message
from llama_py_tools.thoughts import dimmed, with_thoughts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_py import Piece
    from llama_py_tools.chat_params import ChatParams
    from llama_py_tools.generation import Run

HELP = "commands: /clear forgets the conversation, /exit (or Ctrl-D) ends it"


class Talk:
    """Reads what the user says and shows what the model answers."""

    def __init__(self, run: Run, params: ChatParams, escape: bool = True) -> None:
        """escape: whether the system prompt has escapes. ModelError if the template is none."""
        from llama_py import Conversation

        run.model.check_chat_template()
        system = unescape(params.system_prompt) if escape else params.system_prompt
        self.run = run
        self.conversation = Conversation(
            run.ctx, system, thoughts=params.reasoning_format != "none",
            budget=params.reasoning_budget, budget_message=params.reasoning_budget_message,
            variables=params.variables(),
        )  # fmt: skip
        if params.reasoning_budget >= 0 and self.conversation.tags is None:
            session.log.warning("--reasoning-budget has no effect: the template has no thoughts")
        self.single_turn, self.multiline = params.single_turn, params.multiline_input
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
        """The next message; None at the end."""
        return message(self.line, self.multiline)

    def line(self) -> str | None:
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
        if n := self.conversation.n_left:
            session.tell(dimmed(f"(the context is full: the {n} oldest messages have left it)"))
        try:
            with closing(self.conversation.answer(ids, **vars(self.run.params))) as pieces:
                self.run.show(with_thoughts(self.watched(pieces)), len(ids))
        except KeyboardInterrupt:
            if not self.terminal or self.single_turn:
                raise
            self.run.summary.pending = None
        self.run.end_line()

    def watched(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces; it is told when the context is full."""
        gone = 0
        for piece in pieces:
            yield piece
            if piece.n_discarded > gone:
                n, gone = piece.n_discarded - gone, piece.n_discarded
                self.run.end_line()
                session.tell(dimmed(f"(the context is full: {n} tokens have left it)"))
            elif piece.finish_reason == "length" and self.full():
                self.run.end_line()
                session.tell(dimmed("(the context is full: --context-shift would go on)"))

    def full(self) -> bool:
        ctx = self.run.ctx
        held = ctx.memory.seq_pos_max(self.conversation.prefix.seq_id) + 1
        return held >= ctx.cparams.n_ctx_seq
