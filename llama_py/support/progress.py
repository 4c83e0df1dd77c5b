"""Progress of long work, shown on one line of stderr and wiped at the end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from ggml_py.machine import building
from ggml_py.machine.building import BuildStage

BAR = 16  # characters
TICK = 0.25  # seconds between two drawings
QUIET, EVERY = 2.0, 10.0  # seconds to the first line without a terminal, and between lines

Progress = Callable[[int, int, str], None]


def on_terminal() -> bool:
    """Return True if stderr is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False


class TerminalLine:
    """A line of the terminal that is drawn repeatedly, by any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._line: Any = None

    def draw(self, text: str) -> None:
        """Draw this text in place of the previous one."""
        with self._lock, _nobody_may_see():
            if self._line is None:
                from tqdm import tqdm

                self._line = tqdm(
                    bar_format="{desc}", leave=False, dynamic_ncols=True, file=sys.stderr
                )
            self._line.set_description_str(text)

    def wipe(self) -> None:
        """Clear the line for other output."""
        if self._line is not None:
            with self._lock, _nobody_may_see():
                line, self._line = self._line, None
                if line is not None:
                    line.close()


def _nobody_may_see() -> suppress:
    """Return a context that ignores errors of a closed stderr."""
    return suppress(OSError, ValueError, AttributeError)


LINE = TerminalLine()


def bar(done: int, total: int) -> str:
    """Return a bar: `|####            |`."""
    from tqdm import tqdm

    shape = f"|{{bar:{BAR}}}|"
    return str(tqdm.format_meter(done, max(total, 1), 0, bar_format=shape, ascii=" #"))


class Kernels:
    """Display of the compilation of kernels (ggml_py.machine.building): finished kernels, of all.

    before     called before drawing
    elsewhere  called with an occasional line if there is no terminal; None: quiet
    """

    TITLE = "compiling kernels, first use only"

    def __init__(
        self,
        before: Callable[[], None] = lambda: None,
        elsewhere: Callable[[str], None] | None = None,
    ) -> None:
        self.before, self.elsewhere = before, elsewhere
        self._earlier = 0  # kernels of stages before the total was known
        self._stage = BuildStage(0, 0)
        self._since = self._start = 0.0
        self._lock = threading.RLock()  # protects drawing against `close`
        self._ends: threading.Event | None = None

    def __call__(self, stage: BuildStage) -> None:
        now = monotonic()
        if stage.stopped:
            self.close()
            return
        if not stage.done:  # others begin
            self._earlier = 0 if self._stage.total else self._earlier + self._stage.done
            self._since, self._start = self._since or now, self._start or now
        self._stage = stage
        if stage.total and stage.done >= stage.total:
            self.close()
        elif on_terminal():
            self._show()
        elif self.elsewhere is not None and stage.done and now - self._since >= QUIET:
            self._since = now + EVERY - QUIET
            self.elsewhere(self.text())

    def text(self) -> str:
        """Return `compiling kernels, first use only: 12 of 39 |####   | 7 s` with elapsed time."""
        s, done = self._stage, self._earlier + self._stage.done
        if not s.total:
            return f"{self.TITLE}: {done} so far" if done else f"{self.TITLE} ..."
        total = self._earlier + s.total
        seconds = round(monotonic() - self._start)
        return f"{self.TITLE}: {done} of {total} {bar(done, total)} {seconds} s"

    def _show(self) -> None:
        with self._lock:
            if self._ends is None:
                self.before()
                self._ends = threading.Event()
                threading.Thread(target=self._tick, args=(self._ends,), daemon=True).start()
            LINE.draw(self.text())

    def _tick(self, ends: threading.Event) -> None:
        while not ends.wait(TICK):
            with self._lock:
                if not ends.is_set():
                    LINE.draw(self.text())

    def close(self) -> None:
        """Clear the line and stop drawing; later compilation is shown again."""
        with self._lock:
            self._since = self._start = 0.0
            if self._ends is not None:
                self._ends.set()
                self._ends = None
                LINE.wipe()


KERNELS = Kernels()  # display for a model and its contexts


@contextmanager
def show_progress(progress: Progress | bool | None) -> Iterator[None]:
    """Show compiled kernels on a terminal within `with`, unless `progress` is False or a function,
    or another listener is active."""
    if progress not in (None, True) or building.is_told() or not on_terminal():
        yield
        return
    with building.send_progress(KERNELS):
        try:
            yield
        finally:
            KERNELS.close()


def progress_callback(progress: Progress | bool | None) -> Progress | None:
    """Return the progress function, if it is one."""
    return None if isinstance(progress, bool) else progress
