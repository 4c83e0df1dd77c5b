"""Progress on stderr: a bar on a terminal, occasional lines elsewhere, silence for short work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic

from llama_py.support.progress import EVERY, LINE, QUIET, bar, on_terminal


class Progress:
    """Callback progress(done, total, name) that prints only after `after` seconds.

    On a terminal it draws a bar, after a call of `before`. Elsewhere it prints a line after `QUIET`
    seconds, and then a line every `EVERY` seconds.
    """

    def __init__(
        self, title: str, after: float = 0.5, before: Callable[[], None] = lambda: None
    ) -> None:
        self.title = title
        self.before = before
        self.terminal = on_terminal()
        self.after = after if self.terminal else max(after, QUIET)
        self._start = 0.0
        self._next = 0.0
        self._drawn = False

    def __call__(self, done: int, total: int, what: str = "") -> None:
        now = monotonic()
        if not self._start:
            self._start, self._next = now, now + self.after
        if done >= total:
            self.close()
        elif self._drawn or (self.terminal and now >= self._next):
            self._draw(done, total, what)
        elif now >= self._next:
            self._next = now + EVERY
            print(f"{self.title}: {100 * done // total}% {what}", file=sys.stderr, flush=True)

    def _draw(self, done: int, total: int, what: str) -> None:
        if not self._drawn:
            self._drawn = True
            self.before()
        LINE.draw(f"{self.title}: {100 * done // total:3}% {bar(done, total)} {what[-40:]}")

    def close(self) -> None:
        """Clear the bar; a later call starts again."""
        if self._drawn:
            LINE.wipe()
        self._drawn, self._start = False, 0.0
