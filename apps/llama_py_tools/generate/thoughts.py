"""Display of a model's reasoning: on a terminal only, dimmed unless NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from llama_py_tools.command.logs import DIM, PLAIN

if TYPE_CHECKING:
    from llama_py import Piece

MARKS = ("[Start thinking]\n", "\n[End thinking]\n\n")  # llama-cli's


def has_colors(stream: object) -> bool:
    """Return True if a stream is a terminal with colors enabled (no-color.org)."""
    isatty = getattr(stream, "isatty", None)
    return isatty is not None and isatty() and not os.environ.get("NO_COLOR")


def with_thoughts(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces of a response, with reasoning in their text if it is shown."""
    if sys.stdout is None or not sys.stdout.isatty():
        yield from pieces
        return
    start, end = (DIM, f"{PLAIN}\n\n") if has_colors(sys.stdout) else MARKS
    thinking = False
    try:
        for piece in pieces:
            text, said = "", piece.text
            if piece.reasoning:
                thought = piece.reasoning if thinking else start + piece.reasoning.lstrip()
                text, thinking = thought, True
            if thinking and (said or piece.finish_reason is not None):
                text, said, thinking = text + end, said.lstrip("\n"), False
            yield replace(piece, text=text + said)
    finally:
        if thinking and has_colors(sys.stdout):  # Ctrl-C ended it
            print(PLAIN, end="", flush=True)


def dim(line: str) -> str:
    """Return a dimmed line for stderr during a conversation."""
    return f"{DIM}{line}{PLAIN}" if has_colors(sys.stderr) else line
