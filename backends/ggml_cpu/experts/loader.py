"""Threads that load experts: experts that a layer waits for first, then experts for later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ggml_cpu.experts.disk import PAGE
from ggml_py.backend import Bytes, aligned_bytes
from ggml_py.machine.shield import raise_noted

CHECK_SECONDS = 0.05  # a waiting caller checks for Ctrl-C this often


@dataclass(slots=True, eq=False)
class ExpertLoad:
    """One expert to load, in parts that several threads load at the same time.

    run     loads a part, with memory of the thread; sets `error` instead of raising
    expert  its number;  slot  its place in the cache
    parts   number of parts;  begun, done  parts that threads have begun, and finished
    """

    run: Callable[[ExpertLoad, int, Bytes], None]
    expert: int
    slot: int
    parts: int
    begun: int = 0
    done: int = 0
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait for the end; KeyboardInterrupt on Ctrl-C."""
        while not self.ended.wait(CHECK_SECONDS):
            raise_noted()


class LoaderThreads:
    """Threads with `memory` bytes each. They start with the first loads and end with `stop`."""

    def __init__(self, n_threads: int, memory: int) -> None:
        self._n, self._memory = n_threads, memory
        self._urgent, self._later = deque[ExpertLoad](), deque[ExpertLoad]()
        self._ready = threading.Condition()
        self._threads = list[threading.Thread]()
        self._stops = False

    def add(self, load: ExpertLoad, urgent: bool) -> None:
        with self._ready:
            (self._urgent if urgent else self._later).append(load)
            while len(self._threads) < self._n:
                thread = threading.Thread(target=self._work, name="ggml_cpu-experts", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._ready.notify(load.parts)

    def hurry(self, load: ExpertLoad) -> None:
        """Run the rest of a load before the loads for later."""
        with self._ready:
            if load in self._later:
                self._later.remove(load)
                self._urgent.append(load)

    def stop(self) -> None:
        with self._ready:
            self._stops = True
            self._ready.notify_all()

    def _work(self) -> None:
        memory = aligned_bytes(self._memory, PAGE)
        while (found := self._next()) is not None:
            load, part = found
            load.run(load, part, memory)
            del load, found  # they refer to the cache

    def _next(self) -> tuple[ExpertLoad, int] | None:
        with self._ready:
            while not self._stops:
                if queue := self._urgent or self._later:
                    load = queue[0]
                    load.begun += 1
                    if load.begun == load.parts:
                        queue.popleft()
                    return load, load.begun - 1
                self._ready.wait()
        return None
