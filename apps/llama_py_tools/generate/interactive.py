r"""Alternate writing of a text by model and user, without a template (llama-completion's -i).

The model writes until a reverse prompt (-r), its end token or -n; then the user writes a line. The
model reads that line without a template.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option
from llama_py_tools.command.escapes import unescape
from llama_py_tools.command.streams import next_line

if TYPE_CHECKING:
    from llama_py.text.generate import Pieces
    from llama_py_tools.generate.generation import GenerationRun


class InteractiveParams(Params):
    """Text that the user and the model write alternately."""

    group = "interactive text"

    interactive: bool = option(
        False,
        "-i --interactive",
        "interactive text; the user continues after a reverse prompt (-r), an end token or -n"
        " tokens, or skips the input with an empty line",
        env="",
    )
    interactive_first: bool = option(
        False,
        "-if --interactive-first",
        "interactive text that starts with input of the user",
        env="",
    )
    in_prefix_bos: bool = option(
        False, "--in-prefix-bos", "insert BOS before each input of the user", env=""
    )
    in_prefix: str = option(
        "",
        "--in-prefix",
        "text before each input of the user, without a chat template",
        metavar="TEXT",
        env="",
    )
    in_suffix: str = option(
        "",
        "--in-suffix",
        "text after each input of the user, without a chat template",
        metavar="TEXT",
        env="",
    )

    @property
    def is_interactive(self) -> bool:
        return self.interactive or self.interactive_first

    @property
    def raw(self) -> bool:
        """True if that excludes a chat template."""
        return self.is_interactive or self.in_prefix_bos or bool(self.in_prefix or self.in_suffix)


class InteractiveText:
    """Loop in which the model and the user write a text alternately."""

    def __init__(
        self, run: GenerationRun, params: InteractiveParams, multiline: bool = False
    ) -> None:
        from llama_py.decoding.prefix import Prefix

        self.run, self.params = run, params
        self.terminal = sys.stdin is not None and sys.stdin.isatty()
        self.read = partial(message, partial(next_line, self.terminal), multiline)
        self.ids: list[int] = []
        self.prefix: Prefix = Prefix(run.ctx)

    def go(self, ids: Sequence[int], echo: bool) -> None:
        """Run from a prompt to the end of stdin."""
        self.ids = list(ids)
        mine = not self.params.interactive_first
        if echo and not mine:
            self.run.echo(ids)
        while True:
            if mine:
                self.answer(len(ids) if echo else 0)
            mine, echo = True, False
            self.run.sampler.reset()
            if not self.user():
                return

    def answer(self, n_echo: int = 0) -> None:
        """Let the model go on. On a terminal Ctrl-C gives the turn back."""
        from llama_py import stream

        rest = self.prefix.start(self.ids)
        self.run.note_reuse(self.prefix.last_match)
        before, done = self.ids[: len(self.ids) - len(rest)], list[int]()
        how = vars(self.run.params) | {"before": before}

        def note_tokens() -> Pieces:
            for piece in stream(self.run.ctx, rest, **how):
                if piece.token is not None:
                    done.append(piece.token)
                yield piece

        try:
            with closing(note_tokens()) as pieces:
                self.run.show(pieces, len(rest), self.ids[:n_echo])
        except KeyboardInterrupt:
            if not self.terminal:
                raise
            self.run.summary.pending = None
        finally:
            self.prefix.add([*rest, *done])
            self.ids += done
        self._end(done)

    def _end(self, done: Sequence[int]) -> None:
        """Show the reverse prompt that ended the text, which a response omits. After the model's
        end token, write the first reverse prompt."""
        stops, tokenizer = self.run.params.stop, self.run.model.tokenizer
        text = tokenizer.detokenize(done[-64:])
        if done and done[-1] in tokenizer.eog:
            self.run.write("\n" + "".join(stops[:1]))
            self.ids += tokenizer.tokenize(stops[0], False, True) if stops else []
            return
        found = [text[at:] for stop in stops if (at := text.rfind(stop)) >= 0]
        self.run.write(min(found, key=len, default=""))

    def user(self) -> bool:
        """Let the user go on; False at the end of stdin."""
        p, tokenizer, escape = self.params, self.run.model.tokenizer, self.run.text.escape
        prefix, suffix = ((unescape(t) if escape else t) for t in (p.in_prefix, p.in_suffix))
        self.run.write(prefix)
        line = self.read()
        if line is None:
            return False
        bos = [tokenizer.bos] if p.in_prefix_bos and tokenizer.bos is not None else []
        if line:
            self.run.write(suffix)
            parts = ((prefix, True), (unescape(line) if escape else line, False), (suffix, True))
            for text, special in parts:
                bos += tokenizer.tokenize(text, False, special) if text else []
        self.ids += bos
        return True


def message(read: Callable[[], str | None], multiline: bool) -> str | None:
    r"""Return one line, or several: each but the last ends with `\`; with `multiline` only the last
    does.

    None at the end of stdin.
    """
    line = read()
    if line is None:
        return None
    lines = [line]
    while lines[-1].endswith("\\") != multiline and (line := read()) is not None:
        lines.append(line)
    return "\n".join(line.removesuffix("\\") for line in lines)
