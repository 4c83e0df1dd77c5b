"""Run programs natively on a pool of threads: no Python between one step and the next.

A program is int64 [n, ENTRY_WORDS], see driver.py. All threads run every step, and meet at a
barrier where it says so (barriers.py). Waiting threads spin, then sleep; workers that have nothing
to do for long sleep in Python.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ggml_cpu.driver import (
    CROWDED,
    GENERATION,
    MEET,
    PROGRAM,
    QUIT,
    SEEN,
    SPIN,
    SPIN_NS,
    STEPS,
    TIMEOUT,
    TIMES,
    WORDS_PER_THREAD,
    launch,
    nothing,
    work,
)
from ggml_cpu.objcache import load_kernels
from ggml_cpu.recorded import RecordedTimes
from ggml_py.backend import CPUs
from ggml_py.machine import host
from ggml_py.machine.environment import number
from ggml_py.machine.shield import Shield

LONGEST = 10**9  # ns of spinning
SLEEP_NS = 1_000_000  # that a thread sleeps natively before it looks again by itself


def spin_ns() -> int:
    """Return how long a waiting thread spins before it sleeps: LLAMA_PY_SPIN, microseconds. A
    process that shares its cores with others may be better off with 0."""
    given = number("LLAMA_PY_SPIN", SPIN_NS, "microseconds", lambda us: round(1000 * float(us)))
    return min(max(0, given), LONGEST)


def in_turn(steps: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Return a program of kernels with their blocks, addresses both, and a barrier after each."""
    return np.array([(kernel, block, 0, MEET) for kernel, block in steps], np.int64)


class _Natives:
    """The native side, driver.py."""

    def __init__(self) -> None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
        addresses = load_kernels([launch, work], None, False)
        self.launch = kind(addresses[launch.name])
        self.work = kind(addresses[work.name])


class _Pool:
    """Threads 1 .. n-1, and the control block they share with the caller, thread 0."""

    def __init__(self, n_threads: int, cpus: CPUs = ()) -> None:
        self.cpus = cpus
        self.control = (ctypes.c_int64 * (SEEN + WORDS_PER_THREAD * n_threads))()
        self.control[TIMEOUT + 1] = SLEEP_NS
        crowded = n_threads > len(set().union(*cpus) or host.usable_cpus())
        self.control[CROWDED], self.control[SPIN] = crowded, 0 if crowded else spin_ns()
        self.address = ctypes.addressof(self.control)
        self.n_threads = n_threads
        self.natives = _Natives()
        self.renew_locks()
        self.threads = [
            threading.Thread(target=self._serve, args=(i,), name=f"ggml_cpu-{i}", daemon=True)
            for i in range(1, n_threads)
        ]
        for thread in self.threads:
            thread.start()

    def renew_locks(self) -> None:
        self.running = threading.Lock()
        self.wake = threading.Condition(threading.Lock())  # guards the two below
        self.busy = False
        self.asleep = 0

    def _serve(self, ith: int) -> None:
        """Run a worker thread: native while there is work, asleep while there is none."""
        if self.cpus:
            host.set_affinity(self.cpus[ith % len(self.cpus)])
        while not self.control[QUIT]:
            self.natives.work(self.address, ith, self.n_threads)
            with self.wake:
                self.asleep += 1
                self.wake.wait_for(lambda: self.busy)
                self.asleep -= 1

    def run(self, program: int, steps: int, times: int) -> None:
        with Shield(), self.running:
            self.control[PROGRAM] = program
            self.control[STEPS] = steps
            self.control[TIMES] = times
            before = host.set_affinity(self.cpus[0]) if self.cpus else None
            try:
                self._keep_awake()
                self.natives.launch(self.address, 0, self.n_threads)
            finally:
                self.busy = False
                if before is not None:
                    host.set_affinity(before)

    def _keep_awake(self) -> None:
        """Keep workers awake from now on, and wake those that sleep."""
        with self.wake:
            self.busy = True
            if self.asleep:
                self.wake.notify_all()

    def stop(self) -> None:
        """End the threads. `busy` stays set, so that none sleeps before it has seen QUIT."""
        with self.running:
            self.control[QUIT] = 1
            self.control[GENERATION] += 1
            self._keep_awake()
            for thread in self.threads:
                thread.join()

    def forget_threads(self) -> None:
        """Forget all threads after a fork: the child has neither them nor their locks."""
        self.threads = []
        self.renew_locks()


class Executor:
    """A pool of `n_threads` threads (the caller is one of them) that runs programs. Thread i runs
    on the CPUs cpus[i % len(cpus)], if there are some; the caller only while it does.

    Calls from several Python threads are served one after the other. Threads are started at the
    first run, and again in a forked child.
    """

    def __init__(self, n_threads: int, cpus: CPUs = ()) -> None:
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1, got {n_threads}")
        self.cpus = cpus
        self._n_threads = n_threads
        self._pool: _Pool | None = None
        self._finish: Callable[[], object] | None = None
        self.times: list[RecordedTimes] | None = None  # of what is run, while somebody wants them
        self._starting = threading.Lock()
        _EXECUTORS.add(self)

    @property
    def n_threads(self) -> int:
        return self._n_threads

    @n_threads.setter
    def n_threads(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"n_threads must be at least 1, got {n}")
        if n != self._n_threads:
            self.close()
            self._n_threads = n

    def run(self, program: int, steps: int, profile: NDArray[np.int64] | None = None) -> None:
        """Run `steps` steps of the program at address `program`; returns when all are done, if a
        barrier follows the last.

        profile: int64 [n_threads, steps + 1, 2]; gets when a thread began a step, and when its
            kernel had ended, in nanoseconds of the system's clock; at last when thread 0 had
            ended.
        """
        if steps < 1:
            return
        times = 0
        if profile is not None:
            shape = self.n_threads, steps + 1, 2
            whole = profile.flags.c_contiguous and profile.flags.writeable
            if profile.shape != shape or profile.dtype != np.int64 or not whole:
                raise ValueError(f"profile must be a dense int64 array of shape {list(shape)}")
            times = int(profile.ctypes.data)
        (self._pool or self._start()).run(program, steps, times)

    def barrier_seconds(self, n: int = 10000) -> float:
        """Return the seconds of a barrier when all threads come at the same time."""
        step = load_kernels([nothing])[nothing.name]
        program = in_turn([(step, 0)] * n)
        seconds = []
        for _ in range(5):
            start = perf_counter()
            self.run(int(program.ctypes.data), n)
            seconds.append(perf_counter() - start)
        return min(seconds) / n

    def _start(self) -> _Pool:
        with self._starting:
            if self._pool is None:
                pool = _Pool(self._n_threads, self.cpus)
                self._finish = weakref.finalize(self, pool.stop)
                self._pool = pool
            return self._pool

    def close(self) -> None:
        """End the threads; a later run starts new ones."""
        with self._starting:
            self._pool = None
            if self._finish is not None:
                self._finish()
                self._finish = None

    def _after_fork(self) -> None:
        self._starting = threading.Lock()
        if self._pool is not None:
            self._pool.forget_threads()
            self._pool = None


_EXECUTORS: weakref.WeakSet[Executor] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for executor in list(_EXECUTORS):
        executor._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
