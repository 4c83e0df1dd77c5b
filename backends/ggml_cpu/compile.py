"""Compile many kernels, in child processes: the calling one need not import Numba.

A child imports the module that declares a kernel and answers with its object code. What another
process is compiling is waited for instead.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial

from ggml_cpu.children import Children, source
from ggml_cpu.kernel import Kernel
from ggml_cpu.store import STORE
from ggml_py.machine import building, host
from ggml_py.machine.building import BuildStage

Progress = Callable[[int, int, str], None]
Following = Callable[[], Sequence[Kernel]]

IDLE_SECONDS = 10  # for this long, children wait for more kernels
CHILD_MEMORY = 512 << 20  # bytes for each: 270 MiB after 20 kernels, 460 after 80 (Linux)
MOST_CHILDREN = 16  # each types the helpers that its kernels use for itself
_LOOK = 0.1  # seconds between two looks at what another process has compiled


def compile_kernels(
    kernels: Sequence[Kernel],
    progress: Progress | None = None,
    whole: bool = True,
    following: Following = tuple,
) -> dict[Kernel, bytes]:
    """Return the object code of kernels, which are compiled and kept for the next time.

    `progress(done, total, name)` is called after each one. Not `whole`: more will follow, which is
    not known yet. `following()`: what is likely to be asked for next, which is begun where there is
    nothing else to do. Raises BackendError for the first that fails; those finished before are
    kept.
    """
    codes: dict[Kernel, bytes] = {}
    if not kernels:
        return codes
    total = len(kernels) if whole else 0
    building.tell(BuildStage(0, total))
    here = [k for k in kernels if not source(k.module)]
    there = [k for k in kernels if k not in here]
    with (
        closing(_compile_here(here)) as some,
        closing(_COMPILERS.compile(there, following)) as others,
    ):
        for finished in (some, others):
            for kernel, code in finished:
                codes[kernel] = code
                building.tell(BuildStage(len(codes), total, kernel.name))
                if progress is not None:
                    progress(len(codes), len(kernels), kernel.name)
    return codes


def _compile_here(kernels: Sequence[Kernel]) -> Generator[tuple[Kernel, bytes]]:
    """Compile in this process: no other can import the kernels' module."""
    from ggml_cpu import codegen

    for kernel in kernels:
        code = codegen.object_code(kernel)
        STORE.write(kernel, code)
        yield kernel, code


class _Compilers:
    """The child processes. One caller at a time has them."""

    def __init__(self) -> None:
        self._children = Children()
        self._busy = threading.Lock()
        self._idle: threading.Timer | None = None

    def compile(
        self, kernels: Sequence[Kernel], following: Following = tuple
    ) -> Generator[tuple[Kernel, bytes]]:
        """Yield kernels as they get done, with their code; BackendError for one that did not."""
        if not kernels:
            return
        with self._busy:
            self._stop_waiting()
            try:
                yield from self._in_turn(kernels, following)
            finally:
                self._wait()

    def _in_turn(
        self, kernels: Sequence[Kernel], following: Following
    ) -> Generator[tuple[Kernel, bytes]]:
        """Yield what another thread or process has compiled meanwhile, then the rest."""
        from ggml_cpu.lock import CompileTurn
        from ggml_cpu.tidy import tidy

        folder, made = STORE.make()
        with folder or nullcontext(), CompileTurn(folder) as turn:
            while kernels:
                ours = turn.has_come()  # before the look: there may be more after it
                found = STORE.read(kernels)
                yield from found.items()
                kernels = [k for k in kernels if k not in found]
                if ours:
                    break
                if found:
                    turn.progress()
                time.sleep(_LOOK)
            if not kernels:
                return
            self._children.provide(n_children(len(kernels)))
            yield from self._children.compile(kernels, partial(_lacking, following))
            if folder is not None:
                with suppress(OSError):  # the disk is full, say
                    tidy(folder, made)

    def start(self) -> None:
        """Start the children before any work is asked of them."""
        with self._busy:
            self._stop_waiting()
            self._children.provide(n_children())
            self._wait()

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _wait(self) -> None:
        self._idle = threading.Timer(IDLE_SECONDS, self._rest)
        self._idle.daemon = True
        self._idle.start()

    def _rest(self) -> None:
        if self._children.at_work():
            self._wait()
        else:
            self.end()

    def end(self) -> None:
        """End them unless somebody waits for them."""
        if self._busy.acquire(blocking=False):
            self._children.end()
            self._busy.release()

    def after_fork(self) -> None:
        """Forget the children in a forked process: they are the parent's, and ended if dropped."""
        self._of_parent = self._children
        self._children, self._busy, self._idle = Children(), threading.Lock(), None


_COMPILERS = _Compilers()
atexit.register(_COMPILERS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILERS.after_fork)


def _lacking(following: Following) -> list[Kernel]:
    """Return kernels that can be compiled elsewhere and have not been."""
    kernels = [kernel for kernel in following() if source(kernel.module)]
    found = STORE.read(kernels)
    return [kernel for kernel in kernels if kernel not in found]


def start() -> None:
    """Start the processes that compile, so that they import Numba in the meantime."""
    if sys.executable:
        _COMPILERS.start()


def n_children(n_kernels: int = MOST_CHILDREN) -> int:
    """Return how many processes compile so many kernels: as CPUs, their quota and memory allow."""
    cpus, quota = len(host.logical_cpus()), host.cpu_quota()
    if quota is not None:
        cpus = min(cpus, int(quota))
    available, _ = host.memory()
    return max(1, min(cpus, available // CHILD_MEMORY, MOST_CHILDREN, n_kernels))
