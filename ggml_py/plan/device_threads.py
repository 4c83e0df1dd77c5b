"""Threads of devices, one each, so that devices work at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from ggml_py.machine.shield import postpone_interrupts

Task = Callable[[], None]


class _Errand:
    """A task for another thread; `wait` returns when it has ended, well or not."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.error: BaseException | None = None
        self._at_work = threading.Lock()
        self._at_work.acquire()

    def run(self) -> None:
        try:
            self.task()
        except BaseException as e:
            self.error = e
        self._at_work.release()

    def wait(self) -> None:
        with self._at_work:
            pass


class DeviceThreads:
    """Runs several tasks at a time, the first in the caller's thread. Threads are started when they
    are first needed; they are daemons, and end with this object.
    """

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[_Errand | None]] = []
        self._process = os.getpid()

    @postpone_interrupts
    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks and return; then raise an error that one raised, the caller's own first."""
        if self._process != os.getpid():  # a fork has only the thread that forked
            self._queues, self._process = [], os.getpid()
        errands = [_Errand(task) for task in tasks[1:]]
        while len(self._queues) < len(errands):
            self._start()
        for queue, errand in zip(self._queues, errands, strict=False):
            queue.put(errand)
        try:
            tasks[0]()
        finally:
            for errand in errands:
                errand.wait()
        for errand in errands:
            if errand.error is not None:
                raise errand.error

    def _start(self) -> None:
        queue: SimpleQueue[_Errand | None] = SimpleQueue()
        name = f"ggml_py-{len(self._queues) + 1}"
        weakref.finalize(self, queue.put, None)
        threading.Thread(target=_serve, args=(queue,), name=name, daemon=True).start()
        self._queues.append(queue)


def _serve(queue: SimpleQueue[_Errand | None]) -> None:
    while (errand := queue.get()) is not None:
        errand.run()
