"""Interrupt `decode` with Ctrl-C at any line, and check that the context then gives equal logits.

    python -m dev.torture.interrupts [MODEL.gguf ...] [--every 7] [--fresh]
    python -m dev.torture.interrupts MODEL ... --seconds 600 [--threads 2]

Each line of this project (and of `threading`) that a decode runs sends SIGINT once. Then the lost
tokens and the rest of the text are decoded, and all logits are compared bit for bit. With --seconds
another thread sends SIGINT at random times, for this time per model. Models are files, or tiny
models of `dev.tiny_models` as ARCHITECTURE:VARIANT.
"""

from __future__ import annotations

import argparse
import dis
import faulthandler
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ggml_cpu
import ggml_py
import llama_py
from dev import tiny_models as tiny
from llama_py.context import Context

HANGS = 900  # seconds
LATE = 0.1  # seconds of CPU; up to 1 s on the clock, because other programs run
PIECES: list[list[int]] = [[1, 2, 3, 4, 5, 6], [7], [8]]
_OURS = tuple(str(Path(str(p.__file__)).parent) for p in (ggml_cpu, ggml_py, llama_py))
_FILES = (*_OURS, str(threading.__file__))
Floats = NDArray[np.float32]


@cache
def _between(code: CodeType) -> frozenset[int]:
    """Return offsets that call a trace function but cannot be interrupted.

    These are `try`, and the end of a `with` before its call of __exit__.
    """
    found = list(dis.get_instructions(code))
    leaving = {
        a.offset
        for a, b in pairwise(found)
        if a.opname == "LOAD_CONST"
        and a.argval is None
        and (b.opname == "DUP_TOP" or (b.opname == "LOAD_CONST" and b.argval is None))
    }
    for a, b in reversed([*pairwise(found)]):  # after a result moves on the stack
        if b.offset in leaving and a.opname in ("SWAP", "ROT_TWO", "POP_BLOCK"):
            leaving.add(a.offset)
    return frozenset(leaving | {i.offset for i in found if i.opname == "NOP"})


class Lines:
    """Counts lines and returns of this thread; sends SIGINT before number n."""

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
        if here or event == "return":  # at a return, the function may have completed its actions
            self.files.append(frame.f_code.co_filename)
            if len(self.files) == self.n + 1:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self._line


def nothing(ctx: Context, at: int) -> None:
    """Default of `before`: no action."""


@dataclass(frozen=True)
class Story:
    """Text that a context processes in pieces, with an interrupt in one piece.

    fresh   True to delete the graphs of earlier pieces
    before  called before each piece with its number
    """

    ctx: Context
    pieces: Sequence[Sequence[int]]
    fresh: bool = False
    before: Callable[[Context, int], None] = nothing

    def read(self, first: int = 0, skip: int | None = None) -> list[Floats]:
        """Return logits of all tokens of the pieces from `first` on.

        skip  number of tokens to skip in the first piece, without a call of `before`
        """
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
        """Return the file of each line that piece `at` runs."""
        self._to(at)
        with Lines() as lines:
            self.ctx.decode(self.pieces[at], "all")
        return lines.files

    def interrupted(self, at: int, n: int) -> tuple[list[Floats], str]:
        """Return the logits after an interrupt in line n of piece `at`, and that line."""
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
    """Yield the chosen lines of piece `at` that change later logits if interrupted."""
    story.ctx.clear()
    want = np.concatenate(story.read())
    for n in chosen:
        faulthandler.dump_traceback_later(HANGS, exit=True)
        got, where = story.interrupted(at, n)
        faulthandler.cancel_dump_traceback_later()
        rows = np.concatenate(got) if got else want[:0]
        if not np.array_equal(rows, want[len(want) - len(rows) :]):
            yield f"{where} (line {n} of piece {at})"


def bombarded(story: Story, seed: int = 0) -> Iterator[tuple[bool, Seconds]]:
    """Repeatedly send SIGINT at random times of all pieces but the last.

    Yields True if later logits are right, and the time from a signal to KeyboardInterrupt.
    """
    story.ctx.clear()
    rng, want, spent = random.Random(seed), np.concatenate(story.read()), list[float]()
    for _ in range(9):
        story.ctx.clear()
        start = time.perf_counter()
        story.read()
        spent.append(time.perf_counter() - start)
    while True:
        story.ctx.clear()
        took = _signalled(story, rng.random() * sorted(spent)[4])
        rows = np.concatenate(_rest(story))
        yield np.array_equal(rows, want[len(want) - len(rows) :]), took


class Seconds(NamedTuple):
    """Time that passes, and that all threads of this process compute."""

    passed: float
    computed: float

    @classmethod
    def now(cls) -> Seconds:
        """Return the present time on both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Seconds) -> Seconds:
        """Return the time from another to this one."""
        return Seconds(self.passed - start.passed, self.computed - start.computed)


def _signalled(story: Story, delay: float) -> Seconds:
    """Send SIGINT after a delay during a story; return the time until it is raised."""
    main, sent = threading.main_thread().ident or 0, list[Seconds]()

    def send() -> None:
        time.sleep(delay)
        sent.append(Seconds.now())
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=send)
    try:
        thread.start()
        for piece in story.pieces[:-1]:
            story.ctx.decode(piece, "all")
        thread.join()
        time.sleep(HANGS)
    except KeyboardInterrupt:
        came = Seconds.now()
    else:
        raise RuntimeError("a signal was lost")
    thread.join()
    return came.since(sent[0])


def _rest(story: Story) -> list[Floats]:
    """Return the logits after the tokens in memory."""
    n, at = story.ctx.memory.seq_pos_max(0) + 1, 0
    while n >= len(story.pieces[at]):
        n, at = n - len(story.pieces[at]), at + 1
    return story.read(at, n)


def _file(name: str, folder: Path) -> Path:
    """Return a file; for a tiny model's name, generate it."""
    arch, is_tiny, variant = name.partition(":")
    if not is_tiny or Path(name).exists():
        return Path(name)
    return tiny.write_file(folder / f"{arch}.gguf", arch, tiny.find(arch, variant))


def _bombard(paths: Iterable[Path], seconds: float, threads: int) -> int:
    """Print a line for each model; return the number of wrong texts and late signals."""
    bad = 0
    for path in paths:
        ctx = llama_py.load(path).context(n_ctx=64, n_ubatch=4, n_threads=threads)
        end, n, wrong, slowest = time.monotonic() + seconds, 0, 0, Seconds(0, 0)
        for is_right, took in bombarded(Story(ctx, [*PIECES, [9]])):
            n, wrong = n + 1, wrong + (not is_right)
            slowest = Seconds(*map(max, slowest, took))
            if time.monotonic() > end:
                break
        late = f"{slowest.passed:.3f} s, {slowest.computed:.3f} s of CPU"
        print(f"{path.stem}: {n} signals, {wrong} wrong, slowest {late}", flush=True)
        bad += wrong + (slowest.computed > LATE or slowest.passed > 10 * LATE)
    return bad


def main() -> int:
    """Run the test; return 0 if every interrupted line passes."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("models", nargs="*", default=[None], metavar="MODEL.gguf")
    p.add_argument(
        "--every", type=int, default=1, help="interrupt every Nth line only (default: all)"
    )
    p.add_argument("--seconds", type=float, default=0, help="send signals at random times")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument(
        "--fresh", action="store_true", help="rebuild the graphs in the interrupted piece"
    )
    args = p.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    if args.seconds:
        with tempfile.TemporaryDirectory() as folder:
            paths = [_file(name, Path(folder)) for name in args.models]
            return int(_bombard(paths, args.seconds, args.threads) > 0)
    bad = 0
    for path in args.models:
        ctx = llama_py.load(path).context(n_ctx=64, n_ubatch=4, n_threads=args.threads)
        story = Story(ctx, PIECES, args.fresh)
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
