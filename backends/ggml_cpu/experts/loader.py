"""Threads that load experts: experts that a layer waits for first, then experts for later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ggml_py.backend import Bytes, aligned_bytes
from ggml_py.machine.shield import raise_noted

CHECK_SECONDS = 0.05  # a waiting caller checks for Ctrl-C this often


@dataclass(slots=True, eq=False)
class Load:
    """One expert to load.

    run     loads it, with memory of the thread; sets `error` instead of raising
    expert  its number;  slot  its place in the cache
    """

    run: Callable[[Load, Bytes], None]
    expert: int
    slot: int
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait for the end; KeyboardInterrupt on Ctrl-C."""
        while not self.ended.wait(CHECK_SECONDS):
            raise_noted()


class Loader:
    """Threads with `memory` bytes each. They start with the first load and end with `stop`."""

    def __init__(self, n_threads: int, memory: int) -> None:
        self._n, self._memory = n_threads, memory
        self._urgent, self._later = deque[Load](), deque[Load]()
        self._ready = threading.Condition()
        self._threads = list[threading.Thread]()
        self._stops = False

    def add(self, load: Load, urgent: bool) -> None:
        with self._ready:
            (self._urgent if urgent else self._later).append(load)
            if len(self._threads) < self._n:
                thread = threading.Thread(target=self._work, name="ggml_cpu-experts", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._ready.notify()

    def hurry(self, load: Load) -> None:
        """Run a load before the loads for later, unless it has already started."""
        with self._ready:
            if load in self._later:
                self._later.remove(load)
                self._urgent.append(load)

    def drop_later(self) -> list[Load]:
        """Remove and return the loads for later that have not started."""
        with self._ready:
            dropped = list(self._later)
            self._later.clear()
        return dropped

    def stop(self) -> None:
        with self._ready:
            self._stops = True
            self._ready.notify_all()

    def _work(self) -> None:
        memory = aligned_bytes(self._memory, 4096)
        while (load := self._next()) is not None:
            load.run(load, memory)
            load.ended.set()
            del load  # it refers to the cache

    def _next(self) -> Load | None:
        with self._ready:
            while not self._stops:
                if self._urgent:
                    return self._urgent.popleft()
                if self._later:
                    return self._later.popleft()
                self._ready.wait()
        return None
