"""Conversation loop: messages and commands in, responses on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_py.chat.messages import content_parts
from llama_py_tools.command.escapes import unescape
from llama_py_tools.command.streams import is_edited
from llama_py_tools.generate.chat import commands, settings
from llama_py_tools.generate.chat.lines import (
    MessageSource,
    PromptSource,
    StdinLines,
    is_unfinished,
    unfinished_always,
)
from llama_py_tools.generate.thoughts import dim, with_thoughts
from llama_py_tools.models import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_py import Piece
    from llama_py_tools.command.chat_params import ChatParams
    from llama_py_tools.generate.chat.tool_calls import ToolCalls
    from llama_py_tools.generate.generation import GenerationRun

WELCOME = "/help lists commands, Ctrl-C stops a response, Ctrl-D quits"


class Talk:
    """Loop that reads the user's input and shows the model's responses.

    source    source of messages
    more      returns True if a text needs another line
    attached  texts to insert before the next message
    images    image files to insert before these texts
    ended     the user has ended the conversation
    """

    def __init__(
        self,
        run: GenerationRun,
        params: ChatParams,
        escape: bool = True,
        images: Sequence[str] = (),
        tools: ToolCalls | None = None,
    ) -> None:
        """escape: True if the system prompt has escapes; images: of the first message; tools: that
        responses may call. ModelError for an invalid template."""
        from llama_py import Conversation

        run.model.check_chat_template()
        system = unescape(params.system_prompt) if escape else params.system_prompt
        self.run = run
        self.conversation = Conversation(
            run.ctx,
            system,
            thoughts=params.reasoning_format != "none",
            budget=params.reasoning_budget,
            budget_message=params.reasoning_budget_message,
            variables=params.variables(),
            tools=tools.descriptions if tools is not None else (),
        )
        self.tools = tools
        if params.reasoning_budget >= 0 and self.conversation.tags is None:
            session.log.warning(
                "--reasoning-budget has no effect: the chat template has no reasoning"
            )
        self.single_turn = params.single_turn
        self.terminal = sys.stdin is not None and sys.stdin.isatty()
        self.simple = params.simple_io
        self.more = unfinished_always if params.multiline_input else is_unfinished
        self.attached: list[str] = []
        self.images: list[str | Path] = list(images)
        self.ended = False
        self.source = PromptSource(StdinLines(self.more))
        self._beyond = 0  # extra cells of images, beyond their positions
        self._n_responses = 0  # with tools
        self._anew = False  # True if the sampler must process the whole conversation again

    def talk(self, first: str | None) -> None:
        """Answer `first`, then each message, until /exit, Ctrl-D or the end of stdin."""
        once = self.single_turn and first is not None
        self.source = PromptSource(StdinLines(self.more) if once else self._source())
        if self.terminal and not once:
            session.tell(WELCOME)
        line = first if first is not None else self.source.read()
        while line is not None:
            answered = self.take(line, is_typed=line is not first)
            if self.ended or (self.single_turn and answered):
                return
            line = self.source.read()

    def _source(self) -> MessageSource:
        """Return lines from a capable terminal, unless a simple one is requested; else from
        stdin."""
        if self.simple or not is_edited() or os.environ.get("TERM") == "dumb":
            return StdinLines(self.more)
        from llama_py_tools.generate.chat.terminal import Terminal

        words = {name: commands.FILES_OF.get(name, ()) for name in commands.COMMANDS}
        return Terminal({**words, "/set": settings.names()}, self.more)

    def take(self, line: str, is_typed: bool = True) -> bool:
        """Run a command or respond to a message; return True for a message. Errors are printed, and
        the conversation continues."""
        from ggml_py.errors import GGMLError

        command = commands.split(line) if is_typed else None
        try:
            if command is not None:
                commands.obey(self, *command)
            elif line.strip():
                self.turn("\n\n".join([*self.attached, line.strip()]))
                self.attached.clear()
                self.images.clear()
        except KeyboardInterrupt:
            if not self.terminal or self.single_turn:
                raise
        except (GGMLError, OSError) as e:
            dropped = command is None and bool(self.images)
            if command is None:  # the same images would also fail with the next message
                self.images.clear()
            if self.single_turn or (command is None and not self.terminal):
                raise
            session.print_error(e, in_flags=command is None)  # chat commands use Python's names
            if dropped:
                session.tell(dim("(attached images were removed)"))
        return command is None and bool(line.strip())

    def clear(self) -> None:
        self.conversation.clear()
        self.run.sampler.reset()
        self.attached.clear()
        self.images.clear()

    def set(self, changes: Mapping[str, Any]) -> None:
        """Change settings; the conversation continues."""
        settings.apply(self.run, changes)
        self._anew = True

    def last_said(self) -> str:
        """Return the user's last message."""
        said = [m for m in self.conversation.messages if m["role"] == "user"]
        if not said:
            return ""
        texts = [p["text"] for p in content_parts(said[-1]) if p.get("type") == "text"]
        return "\n".join(texts) if content_parts(said[-1]) else str(said[-1]["content"])

    def regenerate(self, text: str | None = None) -> None:
        """Regenerate the last response, or replace the last message and respond; with the next
        seed, as the same seed would give the same text."""
        ids = self.conversation.regenerate(text)
        seed = (self.run.sampler.seed + 1) % (2**32 - 1)
        self.set({"seed": seed})
        self._respond(ids)

    def turn(self, line: str) -> None:
        """Respond to one message. On a terminal Ctrl-C ends the response only."""
        self._respond(self.conversation.add_user_message(line, self.images))

    def _respond(self, ids: list[int]) -> None:
        """Show the response, and the responses to the results of its tool calls."""
        if self.tools is None:
            self._show(ids)
        else:
            self.tools.respond(self.conversation, ids, self._show)

    def _show(self, ids: list[int]) -> bool:
        """Show a response; return False if Ctrl-C ended it."""
        from llama_py.batch.prompts import MixedPrompt, n_cells

        self._beyond = ids.n_beyond if isinstance(ids, MixedPrompt) else 0
        self.run.note_reuse(self.conversation.prefix.last_match)
        if n := self.conversation.n_evicted_messages:
            session.tell(dim(f"(the context is full: the {n} oldest messages were removed)"))
        how = self.run.params
        if self._anew or self.conversation.tools:
            how, self._anew = replace(how, before=self.conversation.prefix.tokens), False
        options = vars(how)
        if self.conversation.tools:  # each response has a sampler with the grammar of its calls
            options = options | vars(self.run.sampler.params) | {"sampler": None}
            options["seed"] = (self.run.sampler.seed + self._n_responses) % (2**32 - 1)
            self._n_responses += 1
        ended = True
        try:
            with closing(self.conversation.answer(ids, **options)) as pieces:
                self.run.show(with_thoughts(self.note_evictions(pieces)), n_cells(ids))
        except KeyboardInterrupt:
            if not self.terminal or self.single_turn:
                raise
            ended = False
            self.run.summary.pending = None
            self.run.end_line()
            session.tell(dim("(stopped)"))
        self.run.end_line()
        return ended

    def note_evictions(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Yield the pieces, and print a note when messages are evicted from the full context."""
        gone = 0
        for piece in pieces:
            yield piece
            if piece.n_discarded > gone:
                n, gone = piece.n_discarded - gone, piece.n_discarded
                self.run.end_line()
                session.tell(dim(f"(the context is full: {n} tokens were removed)"))
            elif piece.finish_reason == "length" and self.full():
                self.run.end_line()
                session.tell(dim(f"(the context is full: {self._what_to_do()})"))

    def _what_to_do(self) -> str:
        return (
            f"{'use --context-shift' if self.run.ctx.memory.can_shift else 'use a larger -c N'} "
            "to continue"
        )

    def full(self) -> bool:
        ctx = self.run.ctx
        held = ctx.memory.seq_pos_max(self.conversation.prefix.seq_id) + 1
        return held + self._beyond >= ctx.cparams.n_ctx_seq
