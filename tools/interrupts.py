"""Interrupts at any line of `decode`: the same context then gives the same logits, bit for bit.

    python tools/interrupts.py [MODEL.gguf ...] [--every 7] [--fresh]

Each line of this project (and of `threading`) that a decode runs gets its turn to raise
KeyboardInterrupt. Whatever the context lost, the rest of the text is decoded and compared.
"""

from __future__ import annotations

import argparse
import dis
import faulthandler
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ggml_cpu
import ggml_py
import llama_py
from llama_py.context import Context

HANGS = 60  # seconds
_OURS = tuple(str(Path(str(p.__file__)).parent) for p in (ggml_cpu, ggml_py, llama_py))
_FILES = (*_OURS, str(threading.__file__))
Floats = NDArray[np.float32]


@cache
def _between(code: CodeType) -> frozenset[int]:
    """Where a trace function is called, but no interrupt comes, and none is reckoned with: `try`,
    and the end of a `with`, before __exit__ is called."""
    found = list(dis.get_instructions(code))
    leaving = {
        a.offset
        for a, b in pairwise(found)
        if a.opname == "LOAD_CONST" and a.argval is None
        and (b.opname == "DUP_TOP" or (b.opname == "LOAD_CONST" and b.argval is None))
    }  # fmt: skip
    for a, b in reversed([*pairwise(found)]):  # with a result, which is put aside first
        if b.offset in leaving and a.opname in ("SWAP", "ROT_TWO", "POP_BLOCK"):
            leaving.add(a.offset)
    return frozenset(leaving | {i.offset for i in found if i.opname == "NOP"})


class Lines:
    """Counts lines and returns of this thread; raises KeyboardInterrupt before number n."""

    def __init__(self, n: int = -1) -> None:
        self.n, self.where = n, ""
        self.files: list[str] = []

    def __enter__(self) -> Lines:
        sys.settrace(self._call)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> bool:
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_FILES) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        here = event == "line" and frame.f_lasti not in _between(frame.f_code)
        if here or event == "return":  # what a function has done may be done already
            self.files.append(frame.f_code.co_filename)
            if len(self.files) == self.n + 1:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def nothing(ctx: Context, at: int) -> None:
    """Nothing happens before a piece."""


@dataclass(frozen=True)
class Story:
    """A text that a context reads in pieces; one of them is interrupted.

    fresh   the piece finds no graphs of earlier ones
    before  called before each piece with its number
    """

    ctx: Context
    pieces: Sequence[Sequence[int]]
    fresh: bool = False
    before: Callable[[Context, int], None] = nothing

    def read(self, first: int = 0, skip: int | None = None) -> list[Floats]:
        """Logits of all tokens of the pieces from the first on; of that, which has begun if `skip`
        is a number, without so many tokens."""
        found = []
        for at in range(first, len(self.pieces)):
            piece = self.pieces[at]
            if at == first and skip is not None:
                piece = piece[skip:]
            else:
                self.before(self.ctx, at)
            if len(piece):
                found.append(self.ctx.decode(piece, "all"))
        return found

    def lines(self, at: int) -> list[str]:
        """The file of each line that piece `at` runs."""
        self._to(at)
        with Lines() as lines:
            self.ctx.decode(self.pieces[at], "all")
        return lines.files

    def interrupted(self, at: int, n: int) -> tuple[list[Floats], str]:
        """What is read of the text from an interrupt in line n of piece `at` on, and that line."""
        self._to(at)
        start = self.ctx.memory.seq_pos_max(0) + 1
        with Lines(n) as lines:
            self.ctx.decode(self.pieces[at], "all")
        done = self.ctx.memory.seq_pos_max(0) + 1 - start
        return (self.read(at, done) if done >= 0 else self.read()), lines.where

    def _to(self, at: int) -> None:
        self.ctx.clear()
        for i in range(at + 1):
            self.before(self.ctx, i)
            if i < at:
                self.ctx.decode(self.pieces[i], "none")
        if self.fresh:
            self.ctx.runner.graphs.clear()


def broken(story: Story, at: int, chosen: Iterable[int]) -> Iterator[str]:
    """The lines among the chosen ones of piece `at` whose interrupt changes what follows."""
    story.ctx.clear()
    want = np.concatenate(story.read())
    for n in chosen:
        faulthandler.dump_traceback_later(HANGS, exit=True)
        got, where = story.interrupted(at, n)
        faulthandler.cancel_dump_traceback_later()
        rows = np.concatenate(got) if got else want[:0]
        if not np.array_equal(rows, want[len(want) - len(rows) :]):
            yield f"{where} (line {n} of piece {at})"


def main() -> int:
    """0 if no line is broken."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("models", nargs="*", default=[None], metavar="MODEL.gguf")
    p.add_argument("--every", type=int, default=1, help="of so many lines only one")
    p.add_argument("--fresh", action="store_true", help="graphs are built in the piece, too")
    args = p.parse_args()
    bad = 0
    for path in args.models:
        ctx = llama_py.load(path).context(n_ctx=64, n_ubatch=4)
        story = Story(ctx, [[1, 2, 3, 4, 5, 6], [7], [8]], args.fresh)
        story.read()
        for at in (0, 1):
            total = len(story.lines(at))
            print(f"{path or 'demo'}: piece {at} runs {total} lines", flush=True)
            for where in broken(story, at, range(0, total, args.every)):
                bad += 1
                print(f"  broken by an interrupt at {where}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
