"""Pool of processes for numbered jobs: results in order; the death of a process is a result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from ggml_py.errors import BackendError

Job = Callable[[int], Any]
Start = Callable[[], Job]


@dataclass(frozen=True, slots=True)
class DeadJob:
    """Result of a job that ended its process."""

    how: str


class CaseWorker:
    """A process that does one job at a time; `job` is the one it is at, None before the first."""

    def __init__(self, start: Start) -> None:
        context = get_context("spawn")  # a fork would copy threads and locks in any state
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, start), daemon=True)
        self.job: int | None = None
        with _ignore_ctrl_c():
            self.process.start()
        theirs.close()

    def take(self, job: int) -> None:
        self.job = job
        self.connection.send(job)

    def answer(self) -> Any:
        """Return the result of its current job; None if it has only started."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
        how = _exit_reason(self.process.exitcode)
        if self.job is None:
            raise BackendError(f"a test process did not start: {how}")
        return DeadJob(how)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def in_order(start: Start, n_jobs: int, n_processes: int) -> Iterator[Any]:
    """Yield results of jobs 0, 1, .., n_jobs-1, each after all earlier jobs.

    Each process calls `start` once and runs its jobs with the returned function. Both are pickled.
    """
    workers = [CaseWorker(start) for _ in range(min(n_processes, n_jobs))]
    answers: dict[int, Any] = {}
    n_given = n_told = 0
    try:
        while n_told < n_jobs:
            ready = wait([w.connection for w in workers if w.job is not None or n_given < n_jobs])
            for i, worker in enumerate(workers):
                if worker.connection not in ready:
                    continue
                answer = worker.answer()
                if worker.job is not None:
                    answers[worker.job] = answer
                    worker.job = None
                if isinstance(answer, DeadJob):
                    worker.stop()
                    workers[i] = CaseWorker(start)
                elif n_given < n_jobs:
                    worker.take(n_given)
                    n_given += 1
            while n_told in answers:
                yield answers.pop(n_told)
                n_told += 1
    finally:
        for worker in workers:
            worker.stop()


def _serve(connection: Connection, start: Start) -> None:
    """Serve jobs in a process: send a greeting, then a result per job until the pipe closes."""
    job = start()
    connection.send(None)
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        connection.send(job(number))


@contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, which all processes of a terminal get, in favor of the parent."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_reason(exitcode: int | None) -> str:
    if exitcode is None or -exitcode not in [*signal.Signals]:
        return f"exit code {exitcode}"
    return f"signal {signal.Signals(-exitcode).name}"
