"""Progress on stderr: a bar on a terminal, sometimes a line elsewhere, nothing for short work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any


class Progress:
    """Called as progress(done, total, what); says nothing before `after` seconds have passed.

    On a terminal a bar is drawn, after a call of `before`. Elsewhere there is a line after `QUIET`
    seconds, and then one every `EVERY` seconds.
    """

    QUIET = 2.0
    EVERY = 10.0

    def __init__(
        self, title: str, after: float = 0.5, before: Callable[[], None] = lambda: None
    ) -> None:
        self.title = title
        self.before = before
        self.terminal = sys.stderr.isatty()
        self.after = after if self.terminal else max(after, self.QUIET)
        self._start = 0.0
        self._next = 0.0
        self._bar: Any = None

    def __call__(self, done: int, total: int, what: str = "") -> None:
        now = monotonic()
        if not self._start:
            self._start, self._next = now, now + self.after
        if done >= total:
            self.close()
        elif self._bar is not None or (self.terminal and now >= self._next):
            self._draw(done, total, what)
        elif now >= self._next:
            self._next = now + self.EVERY
            print(f"{self.title}: {100 * done // total}% {what}", file=sys.stderr, flush=True)

    def _draw(self, done: int, total: int, what: str) -> None:
        if self._bar is None:
            from tqdm import tqdm  # takes as long to import as everything else here

            self.before()
            form = "{desc}: {percentage:3.0f}% |{bar:24}| {unit}"
            self._bar = tqdm(
                total=total, desc=self.title, unit="", file=sys.stderr, leave=False, bar_format=form
            )
        self._bar.total = total
        self._bar.unit = what[-40:]
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Wipe the bar; a later call starts anew."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._start = None, 0.0
