"""A thread for each device, so that devices work at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue

Task = Callable[[], None]


class _Errand:
    """A task for another thread; `wait` returns when it has ended, well or not."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.error: BaseException | None = None
        self._whose: dict[None, str] = {}  # whoever is first: the same answer however often asked
        self._at_work = threading.Lock()  # not an Event: an interrupt in its Python would keep it
        self._at_work.acquire()

    def run(self) -> None:
        if self._whose.setdefault(None, "thread") != "thread":
            return
        try:
            self.task()
        except BaseException as e:
            self.error = e
        self._at_work.release()

    def wait(self) -> None:
        with self._at_work:
            pass

    def recall(self) -> bool:
        """Whether it has not begun, and never will."""
        return self._whose.setdefault(None, "caller") == "caller"


class Crew:
    """Runs several tasks at a time, the first in the caller's thread. Threads are started when they
    are first needed; they are daemons, and end with the crew.
    """

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[_Errand | None]] = []
        self._process = os.getpid()

    def run(self, tasks: Sequence[Task]) -> None:
        """Return when all have ended; then raise what one raised, the caller's own first.

        An interrupt before all are handed out takes back those that have not begun.
        """
        if self._process != os.getpid():  # a fork has no threads but the one that forked
            self._queues, self._process = [], os.getpid()
        errands = [_Errand(task) for task in tasks[1:]]
        while len(self._queues) < len(errands):
            self._start()
        handed_out = False
        try:
            try:
                for queue, errand in zip(self._queues, errands, strict=False):
                    queue.put(errand)
                handed_out = True
                tasks[0]()
            finally:
                _wait_for(errands, recall=not handed_out)
        except KeyboardInterrupt:  # which may have ended the waiting
            _wait_for(errands, recall=not handed_out)
            raise
        for errand in errands:
            if errand.error is not None:
                raise errand.error

    def _start(self) -> None:
        queue: SimpleQueue[_Errand | None] = SimpleQueue()
        name = f"ggml_py-{len(self._queues) + 1}"
        weakref.finalize(self, queue.put, None)
        threading.Thread(target=_serve, args=(queue,), name=name, daemon=True).start()
        self._queues.append(queue)


def _wait_for(errands: Sequence[_Errand], recall: bool) -> None:
    """Until the last has ended, whatever comes between: their memory is in use."""
    interrupted: BaseException | None = None
    for errand in errands:
        while True:
            try:
                if not (recall and errand.recall()):
                    errand.wait()
                break
            except KeyboardInterrupt as e:
                interrupted = e
    if interrupted is not None:
        raise interrupted


def _serve(queue: SimpleQueue[_Errand | None]) -> None:
    while (errand := queue.get()) is not None:
        errand.run()
