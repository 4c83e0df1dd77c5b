"""Locks that show when a thread comes to them: an event instead of a short wait."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import TracebackType


class NotedLock:
    """A lock like the one it replaces.

    Attributes:
        come: Set when the n-th thread is about to take the lock.
    """

    def __init__(self, lock: AbstractContextManager[object], n: int = 1) -> None:
        self._lock, self._n = lock, n
        self._threads: set[int] = set()
        self.come = threading.Event()

    def __enter__(self) -> None:
        self._threads.add(threading.get_ident())
        if len(self._threads) >= self._n:
            self.come.set()
        self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, e, tb)
