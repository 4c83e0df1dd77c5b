"""Compiles kernels in child processes, so that the calling process does not import Numba.

A child imports the module that declares a kernel and returns the kernel's object code. If another
process is compiling into the same cache directory, this one waits for its results first.
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

IDLE_SECONDS = 10  # idle children end after this time
CHILD_MEMORY = 512 << 20  # bytes per child: 270 MiB after 20 kernels, 460 after 80 (Linux)
MOST_CHILDREN = 16  # each child types its kernels' helpers again
_LOOK = 0.1  # seconds between two checks for another process's results


def compile_kernels(
    kernels: Sequence[Kernel],
    progress: Progress | None = None,
    whole: bool = True,
    following: Following = tuple,
) -> dict[Kernel, bytes]:
    """Compile kernels, store their object code in the cache, and return it.

    Args:
        kernels: Kernels to compile.
        progress: Called with (done, total, name) after each kernel.
        whole: False if an unknown number of kernels will follow; progress then shows no total.
        following: Returns kernels that will probably be needed next; idle children compile them.

    Raises:
        BackendError: A kernel does not compile. The cache keeps the kernels finished before.
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
    """Compile in this process the kernels that a child process cannot import."""
    from ggml_cpu import codegen

    for kernel in kernels:
        code = codegen.object_code(kernel)
        STORE.write(kernel, code)
        yield kernel, code


class _Compilers:
    """The child processes, locked for one caller at a time and ended after IDLE_SECONDS."""

    def __init__(self) -> None:
        self._children = Children()
        self._busy = threading.Lock()
        self._idle: threading.Timer | None = None

    def compile(
        self, kernels: Sequence[Kernel], following: Following = tuple
    ) -> Generator[tuple[Kernel, bytes]]:
        """Yield each kernel and its code when compiled; BackendError if one fails."""
        if not kernels:
            return
        with self._busy:
            self._stop_waiting()
            try:
                yield from self._compile_in_turn(kernels, following)
            finally:
                self._wait()

    def _compile_in_turn(
        self, kernels: Sequence[Kernel], following: Following
    ) -> Generator[tuple[Kernel, bytes]]:
        """Yield kernels that another thread or process has just compiled, then compile the rest."""
        from ggml_cpu.lock import CompileTurn
        from ggml_cpu.tidy import tidy

        folder, made = STORE.make()
        with folder or nullcontext(), CompileTurn(folder) as turn:
            while kernels:
                ours = turn.has_come()  # before the read, which then includes all earlier results
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
            yield from self._children.compile(kernels, partial(_find_uncompiled, following))
            if folder is not None:
                with suppress(OSError):  # such as a full disk
                    tidy(folder, made)

    def start(self) -> None:
        """Start the children in advance, so that they import Numba."""
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
        """End the children unless a caller is using them."""
        if self._busy.acquire(blocking=False):
            self._children.end()
            self._busy.release()

    def detach_children(self) -> None:
        """Detach a forked process from the parent's children without ending them.

        The reference `_of_parent` keeps their objects alive.
        """
        self._of_parent = self._children
        self._children, self._busy, self._idle = Children(), threading.Lock(), None


_COMPILERS = _Compilers()
atexit.register(_COMPILERS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILERS.detach_children)


def _find_uncompiled(following: Following) -> list[Kernel]:
    """Return the kernels of `following()` that children can import and the cache lacks."""
    kernels = [kernel for kernel in following() if source(kernel.module)]
    found = STORE.read(kernels)
    return [kernel for kernel in kernels if kernel not in found]


def start() -> None:
    """Start the child processes now, so that they import Numba while this process continues."""
    if sys.executable:
        _COMPILERS.start()


def n_children(n_kernels: int = MOST_CHILDREN) -> int:
    """Return the number of children for `n_kernels`, limited by CPUs, CPU quota and memory."""
    cpus, quota = len(host.logical_cpus()), host.cpu_quota()
    if quota is not None:
        cpus = min(cpus, int(quota))
    available, _ = host.memory()
    return max(1, min(cpus, available // CHILD_MEMORY, MOST_CHILDREN, n_kernels))
