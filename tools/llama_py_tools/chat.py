"""A conversation: messages through the model's chat template, lines from stdin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from llama_py_tools import session

if TYPE_CHECKING:
    from llama_py_tools.generation import Run

HELP = "commands: /clear forgets the conversation, /exit (or Ctrl-D) ends it"


class Conversation:
    """Turns of user and model. What the memory already has of a prompt is not computed again."""

    def __init__(self, run: Run, system: str, single_turn: bool) -> None:
        """ModelError if the model has no chat template."""
        from ggml_py.errors import ModelError

        if run.model.chat_template is None:
            raise ModelError("the model has no chat template; leave out -cnv, -st and -sys")
        self.run = run
        self.template = run.model.chat_template
        self.start = [{"role": "system", "content": system}] if system else []
        self.messages = list(self.start)
        self.memory: list[int] = []  # tokens that sequence 0 holds
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
            import readline  # noqa: F401  line editing and history for input()

            try:
                return input("\n> ").strip()
            except EOFError:
                return None
        line = "" if sys.stdin is None else sys.stdin.readline()
        return line.strip() if line else None

    def clear(self) -> None:
        self.messages = list(self.start)
        self.memory = []
        self.run.ctx.clear()
        self.run.sampler.reset()

    def turn(self, line: str) -> None:
        """One question and its answer. On a terminal Ctrl-C ends the answer only."""
        self.messages.append({"role": "user", "content": line})
        ids = self.prompt()
        try:
            self.run.answer(ids)
        except KeyboardInterrupt:
            if not self.terminal or self.single_turn:
                raise
            self.run.summary.pending = None
        generated = self.run.generated
        self.memory = (self.memory + ids + generated)[: self.run.ctx.memory.seq_pos_max(0) + 1]
        answer = self.run.model.tokenizer.detokenize(generated)
        self.messages.append({"role": "assistant", "content": answer})
        self.run.end_line()

    def prompt(self) -> list[int]:
        """The tokens of the conversation that the memory does not have; it loses what differs."""
        tokenizer, ctx = self.run.model.tokenizer, self.run.ctx
        text = self.template.render(self.messages)
        has_bos = bool(self.template.bos) and text.startswith(self.template.bos)
        ids = tokenizer.tokenize(text, add_special=not has_bos)
        same = 0
        while same < min(len(self.memory), len(ids) - 1) and self.memory[same] == ids[same]:
            same += 1
        if same < len(self.memory) and not ctx.memory.seq_rm(0, same, -1):
            ctx.clear()  # a recurrent state cannot be taken back
            same = 0
        self.memory = self.memory[:same]
        self.run.summary.n_reused += same
        session.check_length(ctx, ids)
        return ids[same:]
