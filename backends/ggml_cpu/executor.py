"""Runs programs on a pool of native threads, without Python between steps.

A program is an int64 array [n, ENTRY_WORDS], see driver.py. All threads run every step; barriers
follow the steps flagged with MEET (barriers.py). Waiting threads spin, then sleep; idle workers
sleep in Python.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
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
    empty_pass,
    launch,
    work,
)
from ggml_cpu.objcache import load_kernels
from ggml_cpu.recorded import RecordedTimes
from ggml_py.backend import CPUs
from ggml_py.machine import host
from ggml_py.machine.environment import number
from ggml_py.machine.shield import Shield

LONGEST = 10**9  # maximum spin time, ns
SLEEP_NS = 1_000_000  # timeout of a native sleep, after which the thread checks again


def spin_ns() -> int:
    """Return the ns that a waiting thread spins before it sleeps (LLAMA_PY_SPIN, microseconds).

    0 can be faster for a process that shares its cores with other processes.
    """
    given = number("LLAMA_PY_SPIN", SPIN_NS, "microseconds", lambda us: round(1000 * float(us)))
    return min(max(0, given), LONGEST)


def in_turn(steps: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Return a program from (kernel, parameter block) addresses, with a barrier after each step."""
    return np.array([(kernel, block, 0, MEET) for kernel, block in steps], np.int64)


class _Natives:
    """The compiled entry points of driver.py: `launch` and `work`."""

    def __init__(self) -> None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)
        addresses = load_kernels([launch, work], None, False)
        self.launch = kind(addresses[launch.name])
        self.work = kind(addresses[work.name])


class _Pool:
    """Worker threads 1 .. n-1 and the control block that they share with the caller, thread 0."""

    def __init__(self, n_threads: int, cpus: CPUs = ()) -> None:
        self.cpus = cpus
        self.control = (ctypes.c_int64 * (SEEN + WORDS_PER_THREAD * n_threads))()
        self.control[TIMEOUT + 1] = SLEEP_NS
        crowded = n_threads > len(set().union(*cpus) or host.usable_cpus())
        self.control[CROWDED], self.control[SPIN] = crowded, 0 if crowded else spin_ns()
        self.address = ctypes.addressof(self.control)
        self.n_threads = n_threads
        self.natives = _Natives()
        self.ids = list[int]()  # native ids of workers that may change their CPU (Linux)
        self.renew_locks()
        self.threads = [
            threading.Thread(target=self._serve, args=(i,), name=f"ggml_cpu-{i}", daemon=True)
            for i in range(1, n_threads)
        ]
        for thread in self.threads:
            thread.start()

    def renew_locks(self) -> None:
        self.running = threading.Lock()
        self.wake = threading.Condition(threading.Lock())  # guards busy and asleep
        self.busy = False
        self.asleep = 0

    def _serve(self, ith: int) -> None:
        """Run a worker thread: native code during runs, sleep in Python when idle."""
        if self.cpus:
            host.set_affinity(self.cpus[ith % len(self.cpus)])
        elif host.SYSTEM == "linux" and not self.control[CROWDED]:
            self.ids.append(threading.get_native_id())
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
                if self.threads:
                    before = self._keep_awake() or before
                self.natives.launch(self.address, 0, self.n_threads)
            finally:
                self.busy = False
                if before:
                    host.set_affinity(before)

    def _keep_awake(self) -> Collection[int]:
        """Set `busy`, so that workers do not sleep in Python, and wake all that do.

        If this changes the CPUs of this thread, return those before. In a virtual machine, Linux
        may wake a thread on the CPU of its waker, although another is idle, and keep it there. Each
        barrier then takes 0.1 to 4 ms, so the caller and awakened workers use different CPUs.
        """
        with self.wake:
            self.busy = True
            if not self.asleep:
                return ()
            before = host.separate_cpus(self.ids) if self.ids else ()
            self.wake.notify_all()
            return before

    def stop(self) -> None:
        """End the threads. `busy` remains set, so that every worker wakes up and reads QUIT."""
        with self.running:
            self.ids.clear()  # no thread changes its CPU
            self.control[QUIT] = 1
            self.control[GENERATION] += 1
            self._keep_awake()
            for thread in self.threads:
                thread.join()

    def forget_threads(self) -> None:
        """Drop all threads and renew the locks in a forked child, which has only one thread."""
        self.threads, self.ids = [], []
        self.renew_locks()


class Executor:
    """A pool of `n_threads` threads, including the caller, that runs programs.

    Thread i is pinned to the CPUs cpus[i % len(cpus)]; the caller only during a run. Without
    `cpus`, no thread is pinned. Runs from several Python threads are serialized. The first run
    starts the threads, in a forked child as well.
    """

    def __init__(self, n_threads: int, cpus: CPUs = ()) -> None:
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1, got {n_threads}")
        self.cpus = cpus
        self._n_threads = n_threads
        self._pool: _Pool | None = None
        self._finish: Callable[[], object] | None = None
        self.times: list[RecordedTimes] | None = None  # times of each run, while profiling
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
        """Run `steps` steps of the program at address `program`.

        If a barrier follows the last step, all steps are finished when this returns.

        Args:
            program: Address of the first entry.
            steps: Number of entries to run.
            profile: int64 [n_threads, steps + 1, 2] for the start and end times of each step in
                each thread, in ns of the system clock. [0, steps, 0] gets thread 0's end time.
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
        """Measure the seconds per barrier if all threads arrive at the same time."""
        step = load_kernels([empty_pass])[empty_pass.name]
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
        """End the threads; the next run starts them again."""
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
